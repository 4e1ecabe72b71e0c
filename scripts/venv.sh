#!/bin/sh
# Makes .venv with the packages of requirements.lock; safe to repeat.
#
# A fresh machine has python3 and perhaps pip, so the installer itself (uv) is taken from the lock with its hashes.
set -eu

venv=${1:?usage: venv.sh FOLDER}
wanted=${PYTHON:-}

say() { printf '%s\n' "venv: $*" >&2; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# How long it takes for a little work, in microseconds: builds differ by a third, whatever their version.
slowness_of() {
    "$1" -c '
import time
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def work():
    begun = time.perf_counter()
    fib(15)
    [f"{i}:{i + 1}" for i in range(2000)]
    return time.perf_counter() - begun
print(int(min(work() for _ in range(20)) * 1e6))' 2>/dev/null || echo 999999
}
# Every command of these names that PATH holds: the first of each name may hide a better one.
all_of() {
    for name in "$@"; do
        (IFS=:; for folder in $PATH; do [ -x "$folder/$name" ] && echo "$folder/$name"; done; true)
    done
}
is_whole() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The newest, unless another one that needs nothing besides is faster by more than a tenth.
find_python() {
    if [ -n "$wanted" ]; then
        is_new_enough "$wanted" && { echo "$wanted"; return; }
        say "PYTHON=$wanted is not a working Python 3.11 or newer."
        exit 2
    fi
    found=
    for candidate in $(all_of python3.13 python3.12 python3.11 python3 python); do
        is_new_enough "$candidate" || continue
        slowness=$(slowness_of "$candidate")
        if [ -z "$found" ] || { [ $((slowness * 11 / 10)) -lt "$least" ] && is_whole "$candidate"; }; then
            found=$candidate
            least=$slowness
        fi
    done
    if [ -n "$found" ]; then echo "$found"; return; fi
    say "no Python 3.11 or newer was found; install one, or name it: make venv PYTHON=/path/to/python3.11"
    exit 2
}

install_with_pip() { # PYTHON-WITH-PIP ARGUMENTS...
    runner=$1
    shift
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 "$runner" -m pip "$@"
}

make_folder() {
    python=$(find_python)
    rm -rf "$venv"
    if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        "$python" -m venv "$venv"
        return
    fi
    # Debian splits ensurepip into python3-venv; its own pip can fill a folder that has none.
    if "$python" -m pip --version >/dev/null 2>&1 && "$python" -m venv --without-pip "$venv"; then
        return
    fi
    if sh scripts/debian.sh python3-venv "which this machine's Python lacks"; then
        "$python" -m venv "$venv"
        return
    fi
    say "$python has neither ensurepip nor pip; install your system's python3-venv package and repeat."
    exit 2
}

install_uv() {
    pins=$venv/uv.lock
    awk '/^[a-zA-Z0-9]/ { keep = /^uv==/ } keep' requirements.lock >"$pins"
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        install_with_pip "$venv/bin/python" install --quiet --require-hashes --no-deps -r "$pins"
    else
        install_with_pip "$(find_python)" --python "$venv/bin/python" install --quiet --require-hashes --no-deps -r "$pins"
    fi
}

sync_packages() {
    "$venv/bin/uv" pip sync --quiet --python "$venv/bin/python" --compile-bytecode --require-hashes "$@" requirements.lock
}

# Walls for the code of steps. A machine that cannot have them runs the code behind weaker ones.
install_walls() {
    command -v bwrap >/dev/null 2>&1 && return
    sh scripts/debian.sh bubblewrap "the sandbox of steps" && return
    say "there is no bubblewrap; steps run in a weaker sandbox (see noetl doctor)"
}

is_new_enough "$venv/bin/python" || make_folder
"$venv/bin/uv" --version >/dev/null 2>&1 || install_uv
sync_packages || { say "trying again with the certificates of this machine"; sync_packages --system-certs; }
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --offline --editable .
install_walls
