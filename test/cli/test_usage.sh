#!/bin/sh
# Help, exit codes, and what wrong input is answered with.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" --help
says out "train"
says out "Exit status: 0 success, 2 bad input"
says out "130 after Ctrl-C, 143 after SIGTERM"
expect 0 "$pstar" --version
says out "pstar 0."
for command in train generate tokenize inspect export merge config report info; do
    expect 0 "$pstar" $command --help
    says out "Usage: pstar $command"
done
expect 0 "$pstar" train --overwrite --help-config
says out "memory.device"
expect 0 "$pstar" info
says out "instruction set"
says out "processor kind "

expect 2 "$pstar"
expect 2 "$pstar" fly
says err "no command 'fly'"
expect 2 "$pstar" train
expect 2 "$pstar" train --overwrite --nonsense
expect 2 "$pstar" generate "$work/tiny.json"
says err "--prompt is needed"
expect 3 "$pstar" train --overwrite "$work/absent.json"
says err "absent.json"

printf '{\n  "optimizer": {"params": {"lrr": 1}}\n}\n' >"$work/bad.json"
expect 2 "$pstar" train --overwrite "$work/bad.json"
says err "bad.json:2:28: unknown key 'optimizer.params.lrr'"
says err "did you mean 'optimizer.params.lr'"
printf '{\n  "memory": {"device": "much"}\n}\n' >"$work/bad.json"
expect 2 "$pstar" train --overwrite "$work/bad.json"
says err "bad.json:2:"
printf '{ "model": ' >"$work/bad.json"
expect 2 "$pstar" train --overwrite "$work/bad.json"
expect 2 "$pstar" train --overwrite "$work/tiny.json" steps
says err "key=value"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.steps=never
expect 3 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/absent.txt"
says err "absent.txt"
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train=
expect 2 "$pstar" train --overwrite "$work/tiny.json" model.vocab_size=100
says err "model.vocab_size = 100"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.eval_interval=1 data.validation_split=0
expect 3 "$pstar" train --overwrite "$work/tiny.json" train.output_dir=/proc/none/deep
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.reproducible=machine train.backend=ref
says err "set train.backend = cpu, or train.reproducible = run"
if ! "$pstar" info --disk-path= | grep -q "^instruction set  *portable$"; then
    expect 2 "$pstar" train --overwrite "$work/tiny.json" train.reproducible=machine train.isa=portable
    says err "leave train.isa out, or set train.reproducible = run"
fi
expect 3 "$pstar" train --overwrite "$work/tiny.json" memory.device=8MB memory.disk=200MB memory.disk_path="$work/tiny.json/absent"
says err "memory.disk_path: $work/tiny.json: is not a folder"
expect 0 "$pstar" train --overwrite "$work/tiny.json" memory.device=8MB memory.disk=200MB memory.disk_path="$work/made/deep" train.steps=1 train.output_dir="$work/made-run"
[ -d "$work/made/deep" ] || fail "memory.disk_path is not made"
expect 3 "$pstar" generate "$work/tiny.json" --prompt x --weights "$work/absent.safetensors"

# a wrong value does no harm where the command line gives another; an unknown key does
printf '{ "train": {"steps": "many"}, "model": {"from_pretrained": "/nowhere"} }\n' >"$work/bad.json"
expect 2 "$pstar" config "$work/bad.json" model.from_pretrained=
says err "train.steps must be"
expect 3 "$pstar" config "$work/bad.json" train.steps=3
expect 0 "$pstar" config "$work/bad.json" train.steps=3 model.from_pretrained=
printf '{ "train": {"stepps": 3} }\n' >"$work/bad.json"
expect 2 "$pstar" config "$work/bad.json" train.stepps=3
says err "did you mean 'train.steps'"

# the configuration in force: read again it is the same, and so is what was given
expect 0 "$pstar" config "$work/tiny.json" train.seed=7
says out '"seed": 7'
says out '"gradient_clipping"'
cp "$work/out" "$work/all.json"
expect 0 "$pstar" config "$work/all.json"
cmp -s "$work/out" "$work/all.json" || fail "another configuration read again"
expect 0 "$pstar" config "$work/tiny.json" --given train.seed=7
cp "$work/out" "$work/given.json"
grep -q gradient_clipping "$work/out" && fail "a default among what was given"
expect 0 "$pstar" config "$work/given.json"
cmp -s "$work/out" "$work/all.json" || fail "another configuration from what was given"
expect 2 "$pstar" config

# a budget that is too small names the operator, its bytes and what would fit; and that fits, and is the least but for rounding
expect 2 "$pstar" train --overwrite "$work/tiny.json" memory.device=1MB memory.disk=200MB
says err "Does not fit: "
says err " of device memory at once"
least=$(named memory.device)
expect 0 "$pstar" train --overwrite "$work/tiny.json" memory.device="$least" memory.disk=200MB train.steps=1
expect 2 "$pstar" train --overwrite "$work/tiny.json" memory.device="$(below "$least")" memory.disk=200MB train.steps=1

# output that is lost is no success
if [ -c /dev/full ]; then
    for command in --help "train --help" info "tokenize --sample 0 $work/tiny.json" "train --overwrite $work/tiny.json train.steps=1"; do
        # shellcheck disable=SC2086 # words
        "$pstar" $command >/dev/full 2>"$work/err"
        [ $? -eq 3 ] || fail "success although the output was lost: $command"
        says err "cannot write to the standard output: "
    done
fi
