#!/bin/sh
# With default options a signal at any instant loses no step: a run that is stopped N_STOPS times (3), and resumed each
# time, ends with the bits of one that was not disturbed. SIGKILL loses what came after the last checkpoint by time.
set -u
build=$1
. test/cli/cli_lib.sh
n_stops=${N_STOPS:-3} seed=${SEED:-1}
run="$pstar train $work/tiny.json train.steps=100 train.output_dir=$work/run"
train() { $run "$@"; }
last_step() { sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' "$work/run/metrics.jsonl" | tail -n 1; }
saved_step() { sed -n 's/^step-0*\([0-9]*\) .*/\1/p' "$work/run/checkpoints/latest"; }

begin=$(date +%s%N)
expect 0 train train.output_dir="$work/whole"
run_ms=$((($(date +%s%N) - begin) / 1000000))
expected=$(summary "$work/whole" weights_xxh3)

stopped=0 finished=0 turn=0
while [ "$stopped" -lt "$n_stops" ]; do
    turn=$((turn + 1))
    set -- $(awk -v seed="$seed" -v n="$turn" -v ms="$run_ms" \
        'BEGIN { srand(seed * 100003 + n); printf "%.4f %d", rand() * ms * 0.6 / 1000, int(rand() * 3) }')
    case $2 in 0) signal=TERM status=143 ;; 1) signal=HUP status=129 ;; *) signal=INT status=130 ;; esac
    begin $run --resume
    sleep "$1"
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    got=$?
    case $got in
    0)
        finished=$((finished + 1))
        [ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after $stopped stops"
        rm -r "$work/run"
        ;;
    $status)
        stopped=$((stopped + 1))
        done_steps=$(last_step)
        [ -z "$done_steps" ] || [ "$(saved_step)" = "$done_steps" ] ||
            fail "stopped by $signal after step $done_steps, and step $(saved_step) is saved"
        ;;
    *) cat "$work/out" "$work/err"; fail "status $got after $signal" ;;
    esac
done
expect 0 train --resume
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after $stopped stops"
echo "$stopped stops, $finished runs came to their end between them"

# nohup: SIGHUP stays ignored.
rm -r "$work/run"
(trap '' HUP; exec $run) >"$work/out" 2>"$work/err" &
pid=$!
await "$work/run/metrics.jsonl"
kill -HUP $pid
ends 0

# Nothing reads the output any more.
rm -r "$work/run"
{ train train.steps=4000 train.log_interval=1; echo $? >"$work/status"; } 2>"$work/err" | head -n 3 >/dev/null
[ "$(cat "$work/status")" = 141 ] || fail "status $(cat "$work/status") after a broken pipe"
[ "$(saved_step)" = "$(last_step)" ] || fail "a broken pipe loses steps: $(saved_step) of $(last_step)"

# SIGKILL: the checkpoint by time is there; what is lost was computed after it.
rm -r "$work/run"
begin $run train.steps=100000 train.save_minutes=0.005
await "$work/run/checkpoints/latest"
kill -KILL $pid
wait $pid 2>/dev/null
[ "$(saved_step)" -gt 0 ] || fail "nothing is saved"
saved=$(saved_step)
expect 0 train train.steps=$((saved + 1)) --resume
says out "after step $saved"
