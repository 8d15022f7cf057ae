#!/bin/sh
# Make a root file system of Debian by debootstrap, or run a command in one.
#
# usage: tool/debian_root.sh make ROOT SUITE [PACKAGE...]
#        tool/debian_root.sh run ROOT USER COMMAND [ARGUMENT...]
#
# As root. `make` needs the network, takes DEBIAN_MIRROR for the mirror, and does nothing where ROOT is complete; the
# words of debootstrap are in ROOT.log. The root gets this machine's name servers, and the certificates and the index
# that pip uses here. `run` changes to USER's rights, has /proc while it runs, and returns the command's status.
set -eu
usage() { sed -n '4,5s/^# //p' "$0" >&2; exit 2; }
[ $# -ge 3 ] || usage
[ "$(id -u)" -eq 0 ] || { echo 'debian_root: debootstrap and chroot need root' >&2; exit 2; }
verb=$1 root=$2
shift 2

case $verb in
make)
    suite=$1
    shift
    if [ ! -e "$root/.complete" ]; then
        command -v debootstrap >/dev/null || { echo 'debian_root: no debootstrap: apt-get install debootstrap' >&2; exit 2; }
        mkdir -p "$root"
        packages=$(echo "$@" | tr ' ' ,)
        debootstrap --variant=minbase ${packages:+"--include=$packages"} "$suite" "$root" \
            "${DEBIAN_MIRROR:-http://deb.debian.org}/debian" >"$root.log" 2>&1 ||
            { echo "debian_root: debootstrap $suite failed; the end of $root.log:" >&2; tail -n 5 "$root.log" >&2; exit 1; }
        touch "$root/.complete"
    fi
    cp -L /etc/resolv.conf "$root/etc/"
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        mkdir -p "$root/etc/ssl/certs"
        cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    fi
    [ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/"
    ;;
run)
    [ $# -ge 2 ] || usage
    user=$1
    shift
    mount -t proc proc "$root/proc"
    trap 'umount "$root/proc"' EXIT
    home=$(awk -F: -v user="$user" '$1 == user { print $6 }' "$root/etc/passwd")
    [ -n "$home" ] || { echo "debian_root: there is no user $user in $root" >&2; exit 2; }
    status=0
    chroot --userspec="$user" "$root" /usr/bin/env -i HOME="$home" LC_ALL=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" || status=$?
    exit $status
    ;;
*) usage ;;
esac
