#!/bin/sh
# A processor that pstar has not met has to show that products work: a library that dies or computes nonsense is an error with ways out,
# what worked is remembered, and nothing is written where somebody else's link leads.
set -u
build=$1
. test/cli/cli_lib.sh
case $build in *address*) skip "a library cannot be preloaded into a program with AddressSanitizer" ;; esac

cat >"$work/broken.c" <<'EOC'
#include <signal.h>
#include <stdlib.h>
int dnnl_primitive_execute(void *primitive, void *stream, int n, void *args)
{
    (void)primitive, (void)stream, (void)n, (void)args;
    if (getenv("DIES") != NULL) raise(SIGILL);
    return 0;
}
EOC
gcc -shared -fPIC -o "$work/broken.so" "$work/broken.c" || fail "the broken library cannot be built"
export XDG_CACHE_HOME="$work/cache"
mkdir "$work/cache"

expect 1 env LD_PRELOAD="$work/broken.so" DIES=1 "$pstar" train "$work/tiny.json"
says err "signal 4"
says err "train.isa="
says err "ONEDNN_MAX_CPU_ISA"
expect 1 env LD_PRELOAD="$work/broken.so" "$pstar" train "$work/tiny.json"
says err "is wrong"
expect 1 env LD_PRELOAD="$work/broken.so" DIES=1 "$pstar" generate "$work/tiny.json" --prompt "a"
says err "signal 4"
[ ! -e "$work/run" ] || fail "a run was begun"
[ -z "$(ls "$work/cache/patrickstar")" ] || fail "a failure is remembered"

# what could not be seen is neither refused nor remembered; who ignores the end of its children is told nothing
expect 1 sh -c 'trap "" CHLD; exec env LD_PRELOAD="$1" DIES=1 "$2" train "$3"' sh "$work/broken.so" "$pstar" "$work/tiny.json"
says err "signal 4"
[ -z "$(ls "$work/cache/patrickstar")" ] || fail "a failure is remembered"
# the environment that the error names is a way out
for level in AVX512_CORE AVX2 SSE41; do
    expect 0 env ONEDNN_MAX_CPU_ISA=$level "$pstar" train "$work/tiny.json"
    rm "$work/cache/patrickstar"/*
done

expect 0 "$pstar" train "$work/tiny.json"
[ "$(ls "$work/cache/patrickstar" | wc -l)" -eq 1 ] || fail "what worked is not remembered"
before=$(stat -c %i "$work/cache/patrickstar"/products-*)
expect 0 "$pstar" train "$work/tiny.json"
[ "$(stat -c %i "$work/cache/patrickstar"/products-*)" = "$before" ] || fail "it was tried again"
expect 0 "$pstar" train "$work/tiny.json" train.isa=portable
[ "$(ls "$work/cache/patrickstar" | wc -l)" -eq 2 ] || fail "another instruction set is another trial"

# links of others: not followed, and no reason to fail
rm -r "$work/cache/patrickstar"
mkdir "$work/elsewhere"
ln -s "$work/elsewhere" "$work/cache/patrickstar"
expect 0 "$pstar" train "$work/tiny.json"
[ -z "$(ls "$work/elsewhere")" ] || fail "written through a link"
rm "$work/cache/patrickstar"
expect 0 env XDG_CACHE_HOME=/nowhere/at/all "$pstar" train "$work/tiny.json"
expect 0 env -u XDG_CACHE_HOME -u HOME "$pstar" train "$work/tiny.json"
