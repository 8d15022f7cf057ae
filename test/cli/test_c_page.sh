#!/bin/sh
# The C program in doc/c.md compiles without a warning against the built library, and its loss falls.
#
# usage: test/cli/test_c_page.sh BUILD_FOLDER
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

sed -n '/^```c$/,/^```$/{/^```/d;p}' doc/c.md >"$tmp/example.c"
[ -s "$tmp/example.c" ] || { echo "doc/c.md has no C program"; exit 1; }
ln -s "$PWD/$build/libpatrickstar.so" "$tmp/libpatrickstar.so.0.2" # the name that programs ask for
# shellcheck disable=SC2086 # flags are words
$cc -Wall -Wextra -Werror -std=c11 ${sanitize:+-fsanitize=$sanitize} -Iinclude -o "$tmp/example" "$tmp/example.c" \
    "$tmp/libpatrickstar.so.0.2" -Wl,-rpath,"$tmp"
"$tmp/example"
