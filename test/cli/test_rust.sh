#!/bin/sh
# The program in Rust compiles without a warning against the built library, and its loss falls.
#
# usage: test/cli/test_rust.sh BUILD_FOLDER
set -eu
build=$1
. test/cli/skip_lib.sh
case ${build##*/} in *address* | *undefined* | *thread*) skip "programs that do not know of sanitizers" ;; esac
case ${build##*/} in *minimal*) skip "the shared library, which such a build has not" ;; esac
command -v rustc >/dev/null || skip rustc
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for name in libpatrickstar.so libpatrickstar.so.0; do ln -s "$PWD/$build/libpatrickstar.so" "$tmp/$name"; done
rustc -D warnings -O examples/program.rs -o "$tmp/program" -L "native=$tmp" -l dylib=patrickstar -C "link-arg=-Wl,-rpath,$tmp"
"$tmp/program" >"$tmp/output"
awk '{ last = $2; if (NR == 1) first = $2 } END { if (NR != 20 || !(last < first)) exit 1 }' "$tmp/output" ||
    { cat "$tmp/output"; exit 1; }
