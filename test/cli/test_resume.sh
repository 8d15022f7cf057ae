#!/bin/sh
# --resume as a user does it: from the latest, from one named, in other memory, with more steps; what is refused; a disk
# that is full during a save; Ctrl-C.
set -u
build=$1
. test/cli/cli_lib.sh
. test/cli/kill_lib.sh

expect 0 "$pstar" train "$work/mini.json" train.steps=12 train.save_interval=0 train.output_dir="$work/whole"
expected=$(summary "$work/whole" weights_xxh3)
[ ! -e "$work/whole/checkpoints" ] || fail "checkpoints without train.save_interval"

# in three pieces, each in other memory; the last step of each is saved though the interval does not fall on it
expect 0 "$pstar" train "$work/mini.json" --resume train.steps=4 train.save_interval=3
says out "no checkpoint in"
says out "checkpoint step-000003: "
says out "training waited for "
expect 0 "$pstar" train "$work/mini.json" train.steps=8 train.save_interval=3 --resume default_chunk_size=4096 \
    memory.device=2MB memory.disk=0
says out "after step 4"
expect 0 "$pstar" train "$work/mini.json" --resume "$work/run/checkpoints/step-000008" train.steps=12 memory.host=1MB
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after resuming"
grep '"loss":' "$work/run/metrics.jsonl" | cut -d, -f1-5 >"$work/a"
cut -d, -f1-5 "$work/whole/metrics.jsonl" | cmp -s - "$work/a" || fail "metrics.jsonl does not read as of one run"
grep -q '"checkpoint":"step-000003"' "$work/run/metrics.jsonl" || fail "the save is not in metrics.jsonl"
cp "$work/run/summary.json" "$work/kept"
# the weights may be missing, as after a kill between the last checkpoint and the end
expect 0 "$pstar" train "$work/mini.json" --resume train.steps=12 train.save=true
says out "nothing to do: the run in $work/run has ended after step 12"
cmp "$work/kept" "$work/run/summary.json" || fail "the summary of a finished run was written anew"
[ -s "$work/run/model.safetensors" ] || fail "no weights of a finished run"
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after no step"

# without `latest` the newest complete checkpoint counts: nothing begins at 0 and removes it
cp -r "$work/run" "$work/lost"
rm "$work/lost/checkpoints/latest"
mkdir "$work/lost/checkpoints/step-000099" # not complete
expect 2 "$pstar" train "$work/mini.json" train.output_dir="$work/lost" train.save_interval=3
says err "of an earlier run"
expect 0 "$pstar" train "$work/mini.json" --resume train.output_dir="$work/lost" train.steps=14
says out "has no \`latest\`"
says out "after step 12"

# one that is damaged is not the same as none; a checkpoint that is named does not ask for it
echo step-000014 >"$work/lost/checkpoints/latest"
expect 2 "$pstar" train "$work/mini.json" train.output_dir="$work/lost" train.save_interval=3
says err "of an earlier run"
expect 2 "$pstar" train "$work/mini.json" --resume train.output_dir="$work/lost" train.steps=15
says err "latest: damaged"
expect 0 "$pstar" train "$work/mini.json" --resume "$work/lost/checkpoints/step-000014" train.output_dir="$work/lost" train.steps=15
says out "after step 14"

# what would not be the same run is refused, by name
expect 2 "$pstar" train "$work/mini.json"
says err "--resume"
for change in train.seed=3 train_micro_batch_size_per_gpu=4 gradient_accumulation_steps=2 data.sequence_length=8 \
    data.validation_split=0.5 data.shuffle=false model.num_attention_heads=1; do
    expect 2 "$pstar" train "$work/mini.json" --resume "$change"
    says err "${change%%=*}"
done
head -c 30000 "$work/bytes.u16" >"$work/other.u16"
expect 2 "$pstar" train "$work/mini.json" --resume data.train="$work/other.u16"
says err "train.init_from"
# data of which one byte in the middle is another
size=$(wc -c <"$work/bytes.u16")
{ head -c $((size / 4 * 2)) "$work/bytes.u16"; printf '\001\000'; tail -c +$((size / 4 * 2 + 3)) "$work/bytes.u16"; } >"$work/middle.u16"
[ "$(wc -c <"$work/middle.u16")" -eq "$size" ] && ! cmp -s "$work/bytes.u16" "$work/middle.u16" || fail "no other data"
expect 2 "$pstar" train "$work/mini.json" --resume data.train="$work/middle.u16"
says err "of as many samples the first and last are the same, but others"
says err "xxh3 of all data"
# the same under another name
cp "$work/bytes.u16" "$work/same.u16"
expect 0 "$pstar" train "$work/mini.json" --resume data.train="$work/same.u16" train.steps=12
expect 3 "$pstar" train "$work/mini.json" --resume "$work/nowhere"
says err "$work/nowhere"
# the weights alone begin a new run
expect 0 "$pstar" train "$work/mini.json" train.seed=3 train.output_dir="$work/new" train.steps=2 \
    train.init_from="$work/run/checkpoints/step-000012/model-0-of-1.safetensors"

# Ctrl-C saves the step it ends after
begin "$pstar" train "$work/mini.json" train.steps=1000000 train.save_interval=1000000 train.output_dir="$work/stopped"
await "$work/stopped/metrics.jsonl"
kill -INT $pid
ends 130
step=$(sed -n 's/stopped after step \([0-9]*\) of.*/\1/p' "$work/out")
[ -e "$work/stopped/checkpoints/step-$(printf %06d "$step")/state.json" ] || fail "the last step was not saved"

# the loop of doc/checkpoints.md: a run that was stopped is resumed, a mistake ends it
sed -n '/^until pstar/,/^done/p' doc/checkpoints.md >"$work/loop.sh"
mkdir "$work/bin" "$work/loop"
cat >"$work/bin/pstar" <<EOT
#!/bin/sh
echo call >>calls
[ "\$(wc -l <calls)" -gt 1 ] && exec "$pstar" "\$@"
( while [ ! -s run/metrics.jsonl ]; do sleep 0.05; done; kill -TERM \$\$ ) &
exec "$pstar" "\$@" train.steps=1000000
EOT
chmod +x "$work/bin/pstar"
# loop CODE CALLS: it ends so, after so many calls of pstar
loop() {
    (cd "$work/loop" && PATH="$work/bin:$PATH" timeout 300 sh "$work/loop.sh") >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$1" ] && [ "$(wc -l <"$work/loop/calls")" -eq "$2" ] ||
        { cat "$work/out" "$work/err"; fail "the loop: exit status $got after $(wc -l <"$work/loop/calls") calls"; }
}
sed "s,$work/run,run," "$work/mini.json" >"$work/loop/config.json"
loop 0 2
says out "stopped after step"
says out "resumed from run/checkpoints after step"
sed 's/"optimizer"/"optimiser"/' "$work/mini.json" >"$work/loop/config.json"
loop 2 3
says err "did you mean 'optimizer'"

# a full disk: a file system of 1 MiB, with room for two checkpoints, when all are kept
cat >"$work/full.sh" <<EOT
mkdir "$work/small" && mount -t tmpfs -o size=1m tmpfs "$work/small" || exit 77
"$pstar" train "$work/mini.json" train.steps=4 train.save_interval=2 train.output_dir="$work/small" memory.disk=0 \
    memory.device=2MB >"$work/out" 2>"$work/err"
[ \$? -eq 0 ] || exit 1
"$pstar" train "$work/mini.json" --resume train.steps=10 train.save_interval=2 train.output_dir="$work/small" \
    memory.disk=0 memory.device=2MB train.keep_last=0 >>"$work/out" 2>>"$work/err"
echo \$? >"$work/code"
cp -r "$work/small" "$work/after"
rm -rf "$work/small/checkpoints/step-000004"
"$pstar" train "$work/mini.json" --resume train.steps=12 train.save_interval=2 train.output_dir="$work/small" \
    memory.disk=0 memory.device=2MB train.keep_last=1 >>"$work/out" 2>>"$work/err" || exit 2
cp "$work/small/summary.json" "$work/"
EOT
in_own_mounts "$work/full.sh"
case $? in
0)
    [ "$(cat "$work/code")" -eq 3 ] || fail "exit status $(cat "$work/code") when the last checkpoint could not be written"
    grep -q "checkpoint of step 8 failed: .*No space left" "$work/err" || fail "no error line: $(cat "$work/err")"
    grep -q '"step":8,"checkpoint_error":' "$work/after/metrics.jsonl" || fail "no error in metrics.jsonl"
    [ "$(grep -c '"loss":' "$work/after/metrics.jsonl")" -eq 10 ] || fail "the run did not go on"
    grep -q '^step-000006 ' "$work/after/checkpoints/latest" || fail "latest moved: $(cat "$work/after/checkpoints/latest")"
    ls -A "$work/after/checkpoints" | grep -q tmp && fail "left over: $(ls -A "$work/after/checkpoints")"
    [ "$(summary "$work" weights_xxh3)" = "$expected" ] || fail "other weights after a full disk"
    ;;
77) untried "a full disk: no file system of our own here" ;;
*) cat "$work/out" "$work/err"; fail "full disk: a run failed" ;;
esac
finish
