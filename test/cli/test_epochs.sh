#!/bin/sh
# train.epochs: the steps that follow from the data, schedules that end there, ranks and accumulation, more epochs when
# resumed, and a run of as many steps as a reference.
set -u
build=$1
. test/cli/cli_lib.sh

# 25 lines: with 2 a micro-batch and 2 of these a step, an epoch is 6.25 steps
awk 'BEGIN { for (i = 0; i < 25; i++) printf "{\"prompt\": \"number %d is\", \"completion\": \" %s\"}\n", i, i % 2 ? "odd" : "even" }' \
    >"$work/lines.jsonl"
set -- data.train="$work/lines.jsonl" data.validation_split=0 gradient_accumulation_steps=2 train.steps=null \
    scheduler.type=linear

expect 0 "$pstar" train "$work/tiny.json" "$@" train.epochs=1.5 train.output_dir="$work/epochs"
says out "an epoch is 25 samples, 6.25 steps of 4; train.epochs 1.5: 10 steps"
[ "$(summary "$work/epochs" steps)" = 10 ] || fail "$(summary "$work/epochs" steps) steps, expected 10"

# the same bits as the steps, with a schedule that ends at the last one
expect 0 "$pstar" train "$work/tiny.json" "$@" train.steps=10 train.output_dir="$work/steps"
says out "an epoch is 25 samples, 6.25 steps of 4"
[ "$(summary "$work/epochs" weights_xxh3)" = "$(summary "$work/steps" weights_xxh3)" ] || fail "other weights than by train.steps"
lr() { sed -n 's/.*"lr": *\([^,]*\),.*/\1/p' "$work/$1/metrics.jsonl"; }
[ "$(lr epochs)" = "$(lr steps)" ] || fail "another schedule than by train.steps"
[ "$(lr epochs | tail -n 1)" != "$(lr epochs | head -n 1)" ] || fail "a schedule that does not fall"

# more epochs continue from the checkpoint
expect 0 "$pstar" train "$work/tiny.json" "$@" scheduler.type=constant train.epochs=1 train.save_interval=100 train.output_dir="$work/more"
[ "$(summary "$work/more" steps)" = 7 ] || fail "$(summary "$work/more" steps) steps, expected 7"
expect 0 "$pstar" train "$work/tiny.json" "$@" scheduler.type=constant train.epochs=2 train.save_interval=100 train.output_dir="$work/more" --resume
[ "$(summary "$work/more" steps)" = 13 ] || fail "$(summary "$work/more" steps) steps, expected 13"

# what was dumped with the run can be read again
expect 0 "$pstar" export "$work/epochs" "$work/exported"

# both at once, from whichever place
expect 2 "$pstar" train "$work/tiny.json" train.epochs=1
says err "train.epochs 1 and train.steps 4 both say how long to train; keep one"
# a plan is of a step: epochs change nothing
expect 0 "$pstar" plan "$work/tiny.json" "$@" train.epochs=3 --no-advice
