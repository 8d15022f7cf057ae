#!/bin/sh
# train.log_to = ["tensorboard"]: event files have all of metrics.jsonl, also of a run that is resumed after a crash, and go
# with --overwrite; without it there are none.
set -u
build=$1
. test/cli/cli_lib.sh
check() { "${python:-python3}" "$root/test/cli/check_events.py" "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "events of $*"; }; }
events() { ls "$work/run"/events.out.tfevents.*.pstar 2>/dev/null; }

expect 0 "$pstar" train "$work/tiny.json"
[ -z "$(events)" ] || fail "event files that were not asked for"
rm -r "$work/run"

expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.steps=8 train.eval_interval=3 train.eval_steps=1 \
    train.save_interval=3 train.keep_last=0 gradient_clipping=1
says out "metrics.jsonl, summary.json, events.out.tfevents.*"
check "$work/run" 1
cp -r "$work/run" "$work/whole"
cp "$(events)" "$work/first"

# after a crash: steps beyond the checkpoint, and a record that was cut, go; readers take files by name, whatever the clock
mv "$(events)" "$work/run/events.out.tfevents.9999999998.host.1.pstar"
printf 'cut' >>"$(events)"
echo foreign >"$work/run/events.out.tfevents.1.host"
expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.steps=8 train.eval_interval=3 train.eval_steps=1 \
    train.save_interval=3 train.keep_last=0 gradient_clipping=1 --resume "$work/run/checkpoints/step-000003"
[ "$(cat "$work/run/events.out.tfevents.1.host")" = foreign ] || fail "another program's file was changed"
rm "$work/run/events.out.tfevents.1.host"
check "$work/run" 2
python3 - "$work" "$root/test/cli" <<'EOP' || fail "a resumed run's events are not those of one run"
import json, os, sys
work = sys.argv[1]
sys.path.insert(0, sys.argv[2])
from check_events import read_events, records
same = lambda folder: [(step, {k: v for k, v in what.items() if k.startswith(("train/", "eval/"))})
                       for _, _, step, what in read_events(work + "/" + folder)
                       if isinstance(what, dict) and "train/loss" in what]
assert same("whole") == same("run") and len(same("run")) == 8
events = read_events(work + "/run")
assert [(i, step) for i, (_, _, step, what) in enumerate(events) if what == "start"] == \
    [(next(i for i, e in enumerate(events) if e[0] != events[0][0]) + 1, 4)], events
assert [e[0] for e in events] == sorted(e[0] for e in events)
times = [time for _, time, _, _ in events]
assert times == sorted(times)
# a reader that was there before the crash has all of the first file; what is left of it are events that it has, in their order
kept = next(name for name, *_ in events)
with open(os.path.join(work, "run", kept), "rb") as a, open(work + "/first", "rb") as b:
    a, b = list(records(a.read())), list(records(b.read()))
later = iter(b)
assert all(record in later for record in a) and len(a) < len(b)
# every step once, and every checkpoint, also that from which the run was resumed: it is logged after later steps
lines = [json.loads(line) for line in open(work + "/run/metrics.jsonl")]
assert [line["step"] for line in lines if "loss" in line] == list(range(1, 9)), lines
assert [line["checkpoint"] for line in lines if "checkpoint" in line] == \
    ["step-000003", "step-000006", "step-000008"], lines
EOP

# resumed once without events, and again with them: no step is there twice
cp -r "$work/run" "$work/between"
expect 0 "$pstar" train "$work/tiny.json" train.steps=7 train.eval_interval=3 train.eval_steps=1 train.save_interval=3 \
    train.keep_last=0 gradient_clipping=1 train.output_dir="$work/between" --resume "$work/between/checkpoints/step-000003"
python3 - "$work/between" "$root/test/cli" <<'EOP' || fail "events that a run without train.log_to left"
import sys
sys.path.insert(0, sys.argv[2])
from check_events import read_events
assert max(step for _, _, step, _ in read_events(sys.argv[1])) == 3, read_events(sys.argv[1])
EOP

# nothing to do: nothing changes
events | xargs cat >"$work/before"
expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.steps=8 train.eval_interval=3 train.eval_steps=1 \
    train.save_interval=3 train.keep_last=0 gradient_clipping=1 --resume
says out "nothing to do"
events | xargs cat | cmp -s - "$work/before" || fail "a finished run's events changed"

# killed at any instant: what was written can be read, and the run goes on
begin "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.steps=100000 train.save_interval=4 train.output_dir="$work/killed"
until [ "$(grep -c '"loss"' "$work/killed/metrics.jsonl" 2>/dev/null)" -ge 9 ] 2>/dev/null; do
    kill -0 $pid || { cat "$work/err"; fail "ended by itself"; }
    sleep 0.05
done
kill -9 $pid
wait $pid 2>/dev/null
python3 - "$work/killed" "$root/test/cli" <<'EOP' || fail "events of a killed run"
import sys
sys.path.insert(0, sys.argv[2])
from check_events import read_events
n_lines = open(sys.argv[1] + "/metrics.jsonl").read().count("\n")
n_events = sum(isinstance(what, dict) for _, _, _, what in read_events(sys.argv[1]))
assert n_lines - n_events in (0, 1), (n_lines, n_events)
EOP
expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.save_interval=4 train.output_dir="$work/killed" --resume \
    train.steps=$(($(grep -c '"loss"' "$work/killed/metrics.jsonl") + 3))
check "$work/killed" 2

# of the run that is written over none are left
expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard --overwrite
check "$work/run" 1
expect 0 "$pstar" train "$work/tiny.json" --overwrite
[ -z "$(events)" ] || fail "events of a run that was overwritten"

# an event file that cannot be created, as its name is taken: a warning, once, and the run goes on to its end
rm -rf "$work/run"
mkdir "$work/run"
: >"$work/run/events.out.tfevents.9999999998.host.1.pstar"
cat >"$work/taken" <<EOT
mkdir "$work/run/events.out.tfevents.9999999999.$(uname -n).\$\$.pstar"
exec "$pstar" train "$work/tiny.json" train.log_to=tensorboard
EOT
expect 0 sh "$work/taken"
[ "$(grep -c 'pstar train: cannot write .*events.out.tfevents.*: File exists.*; training goes on' "$work/err")" -eq 1 ] ||
    { cat "$work/err"; fail "no warning, or several"; }
[ "$(grep -c '"loss"' "$work/run/metrics.jsonl")" -eq 4 ] || fail "the run did not go on"

# no bytes for both logs: likewise, but what is missing in metrics.jsonl is an error at the end
cat >"$work/limited" <<EOT
ulimit -f 4
exec "$pstar" train "$work/tiny.json" train.log_to=tensorboard train.save=false train.steps=12 --overwrite
EOT
expect 3 sh "$work/limited"
for log in metrics.jsonl events.out.tfevents; do
    [ "$(grep -c "cannot write .*$log.*: File too large.*; training goes on" "$work/err")" -eq 1 ] ||
        { cat "$work/err"; fail "$log: no warning, or several"; }
done
says out "step 12/12"
tail -n 1 "$work/err" | grep -q 'cannot write .*metrics.jsonl: File too large' || fail "no error at the end"

# a full disk for metrics.jsonl alone: the weights are written all the same
cat >"$work/full" <<EOT
mkdir "$work/small" "$work/full-run" && mount -t tmpfs -o size=4k tmpfs "$work/small" || exit 77
: >"$work/small/log" && : >"$work/full-run/metrics.jsonl"
mount --bind "$work/small/log" "$work/full-run/metrics.jsonl" || exit 77
"$pstar" train "$work/tiny.json" train.steps=16 train.output_dir="$work/full-run" >"$work/out" 2>"$work/err"
echo \$? >"$work/code"
EOT
in_own_mounts "$work/full"
case $? in
77) untried "a full disk: no file system of our own here" ;;
*)
    [ "$(cat "$work/code")" -eq 3 ] || { cat "$work/out" "$work/err"; fail "exit status $(cat "$work/code")"; }
    [ "$(grep -c 'metrics.jsonl: No space left on device.*; training goes on' "$work/err")" -eq 1 ] ||
        { cat "$work/err"; fail "a full disk: no warning"; }
    [ -s "$work/full-run/model.safetensors" ] || fail "the weights of a run with a full log are lost"
    ;;
esac

# names that no clock gives are no number to count on from
rm -rf "$work/run"
mkdir "$work/run"
: >"$work/run/events.out.tfevents.9223372036854775807.host.1.pstar"
: >"$work/run/events.out.tfevents.99999999999999999999.host.1.pstar"
expect 0 "$pstar" train "$work/tiny.json" train.log_to=tensorboard
[ "$(events | wc -l)" -eq 1 ] || fail "files of an earlier run are left"
case $(events) in */events.out.tfevents.9999999999.*) ;; *) fail "the file is $(events)" ;; esac
check "$work/run" 1

expect 2 "$pstar" train "$work/tiny.json" train.log_to=tensorboard,wandb
says err "train.log_to: 'wandb' is no program to log for; expected tensorboard"
expect 2 "$pstar" train "$work/tiny.json" train.report_to=tensorboard
says err "train.log_to"
finish
