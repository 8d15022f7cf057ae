#!/bin/sh
# What train, plan and info print is understood without the design: none of the phrases that once needed it, no columns of
# zeros, sizes with three digits.
set -u
build=$1
. test/cli/cli_lib.sh

cat >"$work/phrases" <<'EOT'
s a step by computing
the disk's phases
do not go round
pass through it
lost to it
none of NVIDIA
of it waiting
the rest, computing
updates a rank [0-9]* in device memory
needs most
it does not fit
the model does not fit
0\.0000
tokens/s *x [0-9]
to plan with
which cannot be
rates kept
no particular
x that long
\<rates\>
[0-9]\.[0-9][0-9]* *[kMGT]B, [0-9]*\.[0-9]\{3\}
[0-9]\{7,\} bytes
[0-9]\{4,\}\(\.[0-9]*\)\{0,1\} [kMGT]B\>
[0-9]\{2,\}\.[0-9][0-9][0-9]* [kMGT]B\>
EOT

# clear COMMAND...: run it, whether it fits or not, and look at all that it prints
clear() {
    "$@" >"$work/out" 2>&1
    got=$?
    [ $got -eq 0 ] || [ $got -eq 2 ] || { cat "$work/out"; fail "exit status $got: $*"; }
    grep -n -f "$work/phrases" "$work/out" && { cat "$work/out"; fail "said by: $*"; }
    return 0
}

export XDG_CACHE_HOME="$work/cache"
clear "$pstar" plan "$work/tiny.json" hardware=auto # measures this machine
clear "$pstar" info
for budgets in "memory.device=100MB" "memory.device=6MB memory.host=1MB memory.disk=100MB" "memory.device=4MB memory.host=2MB" \
    "memory.device=1MB memory.disk=100MB" "memory.device=100MB memory.host=100MB"; do
    for hardware in auto none; do
        for verbose in "" -v; do
            # shellcheck disable=SC2086 # words
            clear "$pstar" plan "$work/tiny.json" hardware=$hardware $budgets $verbose
            # shellcheck disable=SC2086 # words
            clear "$pstar" train --overwrite "$work/tiny.json" hardware=$hardware train.steps=8 $budgets $verbose
        done
    done
done
clear "$pstar" train --overwrite "$work/tiny.json" train.steps=0
clear "$pstar" eval "$work/tiny.json" --steps 2
clear "$pstar" plan "$work/tiny.json" --sizes
clear "$pstar" plan "$work/tiny.json" memory=20MB memory.device=auto memory.host=auto
for machine in laptop h100-128gb a100-40gb-x8; do
    clear "$pstar" plan --hardware $machine qwen3-0.6b -v bf16.enabled=true data.sequence_length=512
    clear "$pstar" plan --hardware $machine qwen3-0.6b bf16.enabled=true data.sequence_length=512 memory.device=1GB memory.host=1GB memory.disk=0
done
clear "$pstar" plan "$work/tiny.json" --ranks 2 memory.device=6MB memory.disk=100MB -v

# a machine that was measured as much faster, or slower, than it is: one line that can be acted on
description=$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json | head -n 1)
sed 's/"memory_bytes_per_s": .*,/"memory_bytes_per_s": 1e14,/; s/"flop_per_s": [0-9.e+]*/"flop_per_s": 1e16/; s/"\([a-z_]*_ns\)": [0-9.e+-]*/"\1": 0/' \
    "$description" >"$work/fast.json"
clear "$pstar" train --overwrite "$work/tiny.json" hardware="$work/fast.json" train.steps=8
grep -q "^slower    .* a step, planned .*: computing took .*, planned .*Stop other programs; .*pstar info --forget)" "$work/out" || { cat "$work/out"; fail "slower than planned, unsaid"; }
sed 's/"memory_bytes_per_s": .*,/"memory_bytes_per_s": 1e6,/' "$description" >"$work/slow.json"
clear "$pstar" train --overwrite "$work/tiny.json" hardware="$work/slow.json" train.steps=8
grep -q "^planned   .* a step, more than it took: this machine was measured while it was slower; measure it again (pstar info --forget)" "$work/out" || { cat "$work/out"; fail "faster than planned, unsaid"; }
exit 0
