#!/bin/sh
# Room for checkpoints, weights and the disk tier is looked at before the first step: a run that would fail at its end does
# not begin, and what the folder holds stays.
set -u
build=$1
. test/cli/cli_lib.sh

# what is reported is what is written
expect 0 "$pstar" train "$work/tiny.json" train.steps=1 memory.device=8MB memory.disk=100MB
says out "a checkpoint takes 19.6 MB on disk; 1 is kept (train.keep_last), and one more while it is written: 39.2 MB"
says out "checkpoint step-000001: 19.6 MB"
expect 0 "$pstar" plan "$work/tiny.json"
says out "saving    a checkpoint takes 19.6 MB on disk; 1 is kept (train.keep_last), and one more while it is written: 39.2 MB"
expect 0 "$pstar" plan "$work/tiny.json" --json --no-advice train.freeze='*.wte.weight'
# 12 bytes of each parameter that is trained, 4 of a frozen one; the embedding has 50257 rows of 32
[ "$(sed -n 's/^ *"checkpoint_bytes": \([0-9]*\),/\1/p' "$work/out")" = $((1634208 * 12 - 50257 * 32 * 8)) ] ||
    fail "checkpoint_bytes: $(grep checkpoint_bytes "$work/out")"
expect 0 "$pstar" train "$work/tiny.json" train.steps=1 train.save=false train.output_dir="$work/silent"
grep -q "a checkpoint takes" "$work/out" && fail "told of checkpoints that are not written"

# a file system with room for one checkpoint and the weights, not for two checkpoints
cat >"$work/small.sh" <<EOT
mkdir "$work/small" && mount -t tmpfs -o size=40m tmpfs "$work/small" || exit 77
"$pstar" train "$work/tiny.json" train.output_dir="$work/small/run" >"$work/out" 2>"$work/err"
echo \$? >"$work/refused"
find "$work/small" -type f -size +0 ! -name '*.bin' ! -name .lock >"$work/left"
"$pstar" train "$work/tiny.json" train.output_dir="$work/small/run" train.save=false >"$work/out2" 2>"$work/err2"
echo \$? >"$work/without"
"$pstar" train "$work/tiny.json" train.output_dir="$work/small/run" --overwrite model.n_embd=16 >"$work/out3" 2>&1
echo \$? >"$work/smaller"
"$pstar" train "$work/tiny.json" train.output_dir="$work/small/run" --resume train.steps=6 model.n_embd=16 >"$work/out4" 2>&1
echo \$? >"$work/resumed"
rm -r "$work/small/run"
for tier in "memory.device=14MB memory.disk=60MB memory.disk_path=$work/small" \
    "memory.device=14MB memory.disk=60MB memory.disk_path="; do
    # of 23 MB of model data the disk tier has most; next to it no checkpoint has room
    TMPDIR="$work/small" "$pstar" train "$work/tiny.json" train.output_dir="$work/small/disk" train.steps=1 hardware=none \
        \$tier >>"$work/out5" 2>>"$work/err5"
    echo \$? >>"$work/tier"
done
EOT
in_own_mounts "$work/small.sh"
case $? in
0)
    [ "$(cat "$work/refused")" -eq 3 ] || { cat "$work/out" "$work/err"; fail "status $(cat "$work/refused") without room"; }
    says err "small/run has 4"
    says err "39.2 MB for checkpoints of 19.6 MB each, 6.54 MB of weights"
    [ ! -s "$work/left" ] || fail "something was written: $(cat "$work/left")"
    [ "$(cat "$work/without")" -eq 0 ] || { cat "$work/out2" "$work/err2"; fail "refused though nothing is saved"; }
    [ "$(cat "$work/smaller")" -eq 0 ] || { cat "$work/out3"; fail "a model that has room is refused"; }
    [ "$(cat "$work/resumed")" -eq 0 ] || { cat "$work/out4"; fail "what is replaced is not counted as free"; }
    [ "$(tr '\n' ' ' <"$work/tier")" = "3 3 " ] && [ "$(grep -c "[1-9][0-9.]* MB of the disk tier" "$work/err5")" -eq 2 ] ||
        { cat "$work/out5" "$work/err5"; fail "the disk tier has no room and was not refused: $(cat "$work/tier")"; }
    ;;
77) untried "a small file system: none of our own here" ;;
*) fail "the script failed" ;;
esac
finish
