#!/bin/sh
# Takes the listener away. Its messages stay: the subscription and the spool go only with `--data`.
#
#   PROJECT=my-project sh teardown.sh
set -eu
. "$(dirname "$0")/settings.sh"

gone() { # do it, unless there is nothing: the words that describe it, `--`, the words that delete it
  described=""
  while [ "$1" != -- ]; do
    described="$described $1"
    shift
  done
  shift
  # shellcheck disable=SC2086 # names have no spaces: settings.sh has looked
  if google $described > /dev/null 2>&1; then google "$@"; fi
}

gone run services describe "$NAME" "--region=$REGION" -- run services delete "$NAME" --region="$REGION"
gone secrets describe "$SECRET" -- secrets delete "$SECRET"

if [ "${1:-}" = --data ]; then
  gone pubsub subscriptions describe "$SUBSCRIPTION" -- pubsub subscriptions delete "$SUBSCRIPTION"
  gone pubsub topics describe "$TOPIC" -- pubsub topics delete "$TOPIC"
  gone storage buckets describe "gs://$BUCKET" -- storage rm --recursive "gs://$BUCKET"
else
  echo "kept: subscription $SUBSCRIPTION and spool gs://$BUCKET; \`--data\` deletes them with all that waits there"
fi

account="$ACCOUNT@$PROJECT.iam.gserviceaccount.com"
gone iam service-accounts describe "$account" -- iam service-accounts delete "$account"
