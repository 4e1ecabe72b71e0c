#!/bin/sh
# Installs a Debian package where root may: debian.sh PACKAGE "WHAT FOR". Fails where it cannot be had.
set -eu

package=${1:?usage: debian.sh PACKAGE WHAT-FOR}
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 1
printf '%s\n' "debian: installing $package, ${2:?}" >&2
export DEBIAN_FRONTEND=noninteractive
# Two of these may run at once: the second one waits.
get() { apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" >/dev/null 2>&1; }
get install "$package" || { get update && get install "$package"; }
