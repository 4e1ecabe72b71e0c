#!/bin/sh
# Puts the listener on Cloud Run, or a new version of it; `--print` shows what it would hand over.
#
#   PROJECT=my-project IMAGE=... SERVER_URL=https://... SUBSCRIPTION_PATH=plant/readings sh deploy.sh
set -eu
. "$(dirname "$0")/settings.sh"

IMAGE=${IMAGE:?the image of NoETL, in a registry that Cloud Run reads}
SERVER_URL=${SERVER_URL:?the address of the server, https://...}
SUBSCRIPTION_PATH=${SUBSCRIPTION_PATH:?the path of the subscription in the catalog}

case $SERVER_URL in
  https://?*) ;;
  *) echo "SERVER_URL has to begin with https://: the token goes over it" >&2; exit 2 ;;
esac
for value in "$IMAGE" "$SERVER_URL" "$SUBSCRIPTION_PATH"; do
  case $value in
    *[!A-Za-z0-9._:/@-]*) echo "\`$value\` has a character that does not belong there" >&2; exit 2 ;;
  esac
done

filled() {
  sed -e "s|\${NAME}|$NAME|" -e "s|\${MAX_INSTANCES}|$MAX_INSTANCES|" -e "s|\${ACCOUNT}|$ACCOUNT|" \
    -e "s|\${PROJECT}|$PROJECT|" -e "s|\${IMAGE}|$IMAGE|" -e "s|\${SUBSCRIPTION_PATH}|$SUBSCRIPTION_PATH|" \
    -e "s|\${SERVER_URL}|$SERVER_URL|" -e "s|\${BUCKET}|$BUCKET|" -e "s|\${SECRET}|$SECRET|" \
    "$(dirname "$0")/service.yaml"
}

if [ "${1:-}" = --print ]; then
  filled
  exit
fi
file=$(mktemp)
trap 'rm -f "$file"' EXIT
filled > "$file"
google run services replace "$file" --region="$REGION"
