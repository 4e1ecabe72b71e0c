#!/bin/sh
# Makes what a listener on Cloud Run needs, and gives it no more than that:
# an account, a bucket for its spool, a topic with a subscription, and a secret with its token.
# What is there already stays as it is, so that it may be run again.
#
#   PROJECT=my-project sh setup-gcp.sh < runtime.token
set -eu
. "$(dirname "$0")/settings.sh"

there() { # whether something is there: the words that describe it
  google "$@" > /dev/null 2>&1
}

google services enable run.googleapis.com pubsub.googleapis.com secretmanager.googleapis.com storage.googleapis.com

there iam service-accounts describe "$ACCOUNT@$PROJECT.iam.gserviceaccount.com" ||
  google iam service-accounts create "$ACCOUNT" --display-name="NoETL listener"

there storage buckets describe "gs://$BUCKET" ||
  google storage buckets create "gs://$BUCKET" --location="$REGION" --uniform-bucket-level-access --public-access-prevention
google storage buckets add-iam-policy-binding "gs://$BUCKET" --member="$MEMBER" --role=roles/storage.objectUser

there pubsub topics describe "$TOPIC" || google pubsub topics create "$TOPIC"
there pubsub subscriptions describe "$SUBSCRIPTION" ||
  google pubsub subscriptions create "$SUBSCRIPTION" --topic="$TOPIC" --ack-deadline=60 \
    --message-retention-duration=7d --expiration-period=never --enable-message-ordering
google pubsub subscriptions add-iam-policy-binding "$SUBSCRIPTION" --member="$MEMBER" --role=roles/pubsub.subscriber

there secrets describe "$SECRET" || google secrets create "$SECRET" --replication-policy=automatic --data-file=-
google secrets add-iam-policy-binding "$SECRET" --member="$MEMBER" --role=roles/secretmanager.secretAccessor

echo "ready: subscription projects/$PROJECT/subscriptions/$SUBSCRIPTION, spool gs://$BUCKET, secret $SECRET"
