# What the scripts are told: variables of the environment. This file is read by them, not run.

PROJECT=${PROJECT:?the id of a Google Cloud project}
REGION=${REGION:-europe-west6}
NAME=${NAME:-noetl-listener}
ACCOUNT=${ACCOUNT:-$NAME}
SECRET=${SECRET:-$NAME-token}
BUCKET=${BUCKET:-$PROJECT-$NAME-spool}
TOPIC=${TOPIC:-$NAME}
SUBSCRIPTION=${SUBSCRIPTION:-$NAME}
MAX_INSTANCES=${MAX_INSTANCES:-1}

for value in "$PROJECT" "$REGION" "$NAME" "$ACCOUNT" "$SECRET" "$BUCKET" "$TOPIC" "$SUBSCRIPTION" "$MAX_INSTANCES"; do
  case $value in
    "" | *[!A-Za-z0-9._-]*) echo "\`$value\` is no name: letters, digits, \`.\`, \`_\` and \`-\`" >&2; exit 2 ;;
  esac
done

MEMBER="serviceAccount:$ACCOUNT@$PROJECT.iam.gserviceaccount.com"

google() {
  gcloud --project="$PROJECT" --quiet "$@"
}
