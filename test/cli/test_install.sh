#!/bin/sh
# What `make install` puts down is enough to build and run the README's program with pkg-config, shared and static, and
# `make uninstall` takes all of it away.
#
# usage: test/cli/test_install.sh BUILD_FOLDER. A sanitizer's build is not for installing: skipped.
set -eu
. test/cli/skip_lib.sh
variant=${1##*/}
case $variant in *address* | *undefined* | *thread*) skip "programs that do not know of sanitizers" ;; esac
case $variant in *minimal*) skip "the shared library, which such a build has not" ;; esac
cc=${variant%%-d*}
debug=${variant##*-d}
werror=
case $debug in *-werror) werror=1 debug=${debug%-werror} ;; esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Not as a part of the make that may run this test: its flags and job server are not ours.
unset MAKEFLAGS MFLAGS MAKELEVEL
house() { make -s DEPS=0 CC="$cc" DEBUG="$debug" WERROR="$werror" DESTDIR="$tmp/root" PREFIX=/opt/patrickstar "$@"; }
house install
lib=$tmp/root/opt/patrickstar/lib
for file in bin/pstar include/patrickstar.h include/patrickstar.hpp share/man/man1/pstar.1 share/man/man1/pstar-train.1 \
    share/bash-completion/completions/pstar share/zsh/site-functions/_pstar lib/libpatrickstar.a lib/pkgconfig/patrickstar.pc \
    share/doc/patrickstar/README.md share/doc/patrickstar/config.md; do
    [ -s "$tmp/root/opt/patrickstar/$file" ] || { echo "$file is not installed"; exit 1; }
done
for mpi in ${MPI-openmpi}; do
    [ -s "$lib/patrickstar/libpatrickstar_$mpi.so" ] || { echo "the plug-in for $mpi is not installed"; exit 1; }
done
[ "$(readlink "$lib/libpatrickstar.so")" = libpatrickstar.so.0 ] || { echo "no link libpatrickstar.so"; exit 1; }

sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md >"$tmp/example.c"
export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$tmp/root"
# shellcheck disable=SC2046 # flags are words
{
    pkg-config --exists 'patrickstar >= 0.1'
    $cc -o "$tmp/shared" "$tmp/example.c" $(pkg-config --cflags --libs patrickstar)
    readelf -d "$tmp/shared" | grep -q 'NEEDED.*\[libpatrickstar\.so\.0\]' || { echo "not linked by soname"; exit 1; }
    LD_LIBRARY_PATH=$lib "$tmp/shared"

    rm "$lib"/libpatrickstar.so
    $cc -o "$tmp/static" "$tmp/example.c" $(pkg-config --cflags --libs --static patrickstar)
    "$tmp/static"
}

house uninstall
left=$(find "$tmp/root" ! -type d)
[ -z "$left" ] || { echo "left after uninstall: $left"; exit 1; }
