#!/bin/sh
# See that Debian packages are installed; install those that are not, with apt-get, as root or through sudo.
#
# usage: tool/deps.sh PACKAGE...
set -u
exec 9<"$0"
! command -v flock >/dev/null || flock 9 # one after the other, as apt-get update waits for no other one

missing() {
    for package; do
        state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed)
        [ -n "$state" ] || echo "$package"
    done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deps: this is no Debian system, so nothing is installed. The packages there are called: $*" >&2
    exit 0
fi
wanted=$(missing "$@")
if [ -z "$wanted" ]; then
    echo "deps: installed: $*"
    exit 0
fi
# shellcheck disable=SC2086 # package names have no spaces
set -- $wanted

root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: missing: $*" >&2
        echo "deps: not root, and there is no sudo. As root: apt-get install --no-install-recommends $*" >&2
        echo "deps: with libraries of your own: make DEPS=0" >&2
        exit 1
    fi
    root=sudo
fi
echo "deps: missing: $*"
echo "deps: installing by: ${root:+$root }apt-get install --no-install-recommends $* (DEPS=0 on the command line of make: nothing is installed)"
apt() { $root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }

# Package lists may be missing (a container) or older than the archive.
have_lists=yes
for package; do
    apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]' || have_lists=no
done
[ $have_lists = yes ] && apt install --no-install-recommends "$@" && exit 0
apt update && apt install --no-install-recommends "$@"
