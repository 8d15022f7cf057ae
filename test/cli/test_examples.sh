#!/bin/sh
# The programs of examples/ compile against the built library without a warning, and learn; with little memory, chunks on
# disk and in bf16 they give the same losses and weights as with all in memory.
#
# usage: test/cli/test_examples.sh BUILD_FOLDER
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
ln -s "$PWD/$build/libpatrickstar.so" "$tmp/libpatrickstar.so.0.2" # the name that programs ask for

# alike WHAT KEY=VALUE...: the output is that of $tmp/want
alike() {
    what=$1
    shift
    "$tmp/$program" "memory.disk_path=$tmp" "$@" >"$tmp/got" || { echo "$program, $what: exit status $?"; exit 1; }
    cmp "$tmp/want" "$tmp/got" || { echo "$program, $what: other losses or weights"; diff "$tmp/want" "$tmp/got"; exit 1; }
}

# compile: $program, as its users do
compile() {
    # shellcheck disable=SC2086 # flags are words
    $cc -Wall -Wextra -Werror -std=c11 ${sanitize:+-fsanitize=$sanitize} -Iinclude -o "$tmp/$program" "examples/$program.c" \
        "$tmp/libpatrickstar.so.0.2" -Wl,-rpath,"$tmp" -lm
}

# learns: the loss in $tmp/want falls
learns() {
    awk -v what="$program $format" '
        /^step/ { if (!n++) first = $4; last = $4 }
        END { if (!(last < 0.8 * first)) { print what ": loss " first " only fell to " last; exit 1 } }' "$tmp/want"
}

for program in own_operator own_loss; do
    compile
    for format in f32 bf16; do
        set --
        [ $format = f32 ] || set -- bf16.enabled=true
        "$tmp/$program" "$@" >"$tmp/want"
        learns
        alike "half on the host" "$@" memory.device=2600KB memory.host=16MB
        alike "little memory, and a disk" "$@" memory.device=2400KB memory.host=300KB memory.disk=16MB default_chunk_size=8192
        alike "blocks run again" "$@" activation_checkpointing.enabled=true
    done
done

program=own_framework # its activations are its own: chunks get by with less
compile
for format in f32 bf16; do
    set --
    [ $format = f32 ] || set -- bf16.enabled=true
    "$tmp/$program" memory.device=16MB memory.host=0 memory.disk=0 "$@" >"$tmp/want"
    learns
    alike "as it is" "$@"
    alike "all on the host" "$@" memory.host=16MB memory.disk=0
    alike "nothing on the host" "$@" memory.host=0
done
