#!/bin/sh
# Installs Debian packages where root may: debian.sh "PACKAGE ..." "WHAT FOR". Fails where they cannot be had.
set -eu

packages=${1:?usage: debian.sh PACKAGES WHAT-FOR}
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 1
printf '%s\n' "debian: installing $packages, ${2:?}" >&2
export DEBIAN_FRONTEND=noninteractive
# Two of these may run at once: the second one waits.
get() { apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" >/dev/null 2>&1; }
# shellcheck disable=SC2086 # several words are several packages
get install $packages || { get update && get install $packages; }
