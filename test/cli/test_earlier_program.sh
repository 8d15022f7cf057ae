#!/bin/sh
# A program that was compiled and linked with the first header whose structures have sizes runs with today's library.
#
# usage: test/cli/test_earlier_program.sh BUILD_FOLDER
set -eu
build=$1
variant=${build##*/}
. test/cli/skip_lib.sh
case $variant in *minimal*) skip "the shared library, which such a build has not" ;; esac
cc=${variant%%-d*}
sanitize=
case $variant in *address*) sanitize=address ;; esac
case $variant in *undefined*) sanitize=${sanitize:+$sanitize,}undefined ;; esac
case $variant in *thread*) sanitize=thread ;; esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# What the program is linked with has the version of its names that a library of then had, and nothing in it.
sed -n 's/.*\(ps_[a-z_0-9]*\)(.*/void \1(void); void \1(void) { }/p' test/abi/patrickstar_0_2.h | sort -u >"$tmp/then.c"
[ "$(wc -l <"$tmp/then.c")" -ge 15 ] || { echo "no functions found in patrickstar_0_2.h"; exit 1; }
printf 'PATRICKSTAR_0.2 { global: ps_*; local: *; };\n' >"$tmp/then.map"
mkdir "$tmp/then"
$cc -shared -fPIC -Wl,-soname,libpatrickstar.so.0.2 -Wl,--version-script="$tmp/then.map" -o "$tmp/then/libpatrickstar.so.0.2" "$tmp/then.c"
# shellcheck disable=SC2086 # flags are words
$cc -Wall -Wextra -Werror -std=c11 ${sanitize:+-fsanitize=$sanitize} -Itest/abi -o "$tmp/program" test/abi/program_0_2.c \
    "$tmp/then/libpatrickstar.so.0.2" -lm

mkdir "$tmp/now" "$tmp/saved"
ln -s "$PWD/$build/libpatrickstar.so" "$tmp/now/libpatrickstar.so.0.2"
LD_LIBRARY_PATH=$tmp/now "$tmp/program" "$tmp/saved"

# and not with a library that has other versions of these names
sed 's/PATRICKSTAR_0\.2/PATRICKSTAR_9.9/' "$tmp/then.map" >"$tmp/other.map"
mkdir "$tmp/other"
$cc -shared -fPIC -Wl,-soname,libpatrickstar.so.0.2 -Wl,--version-script="$tmp/other.map" -o "$tmp/other/libpatrickstar.so.0.2" "$tmp/then.c"
! LD_LIBRARY_PATH=$tmp/other "$tmp/program" "$tmp/saved" 2>"$tmp/err" || { echo "names have no version"; exit 1; }
grep -q 'PATRICKSTAR_0.2' "$tmp/err" || { cat "$tmp/err"; exit 1; }
