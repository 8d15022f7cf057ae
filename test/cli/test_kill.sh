#!/bin/sh
# SIGKILL at random instants, inside saves too: training that is resumed each time from `latest` ends with the weights of a run
# that was never killed. N_KILLS kills (200), drawn from SEED (1). In memory where there is such a folder, for speed; KILL_FOLDER names another.
set -u
build=$1
[ -w /dev/shm ] && TMPDIR=/dev/shm
TMPDIR=${KILL_FOLDER:-${TMPDIR:-/tmp}}
export TMPDIR
. test/cli/cli_lib.sh
. test/cli/kill_lib.sh
n_kills=${N_KILLS:-200} seed=${SEED:-1}

expect 0 "$pstar" train "$work/mini.json" train.output_dir="$work/whole"
expected=$(summary "$work/whole" weights_xxh3)
n_lines=$(grep -c '"loss":' "$work/whole/metrics.jsonl")
[ "$n_lines" -eq 30 ] || fail "$n_lines lines of steps"

# how long a run takes, so that kills fall everywhere in it
begin=$(date +%s%N)
expect 0 "$pstar" train "$work/mini.json" --resume
run_ms=$((($(date +%s%N) - begin) / 1000000))
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights without a kill"
rm -rf "$work/run"

killed=0 inside=0 runs=0 started=0
while [ "$killed" -lt "$n_kills" ]; do
    started=$((started + 1))
    delay=$(awk -v seed="$seed" -v n="$started" -v ms="$run_ms" \
        'BEGIN { srand(seed * 100003 + n); printf "%.4f", rand() * ms * 0.7 / 1000 }')
    "$pstar" train "$work/mini.json" --resume >"$work/out" 2>"$work/err" &
    pid=$!
    sleep "$delay"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    case $code in
    137)
        killed=$((killed + 1))
        ls -A "$work/run/checkpoints" 2>/dev/null | grep -q '^\.tmp-\|^latest\.tmp' && inside=$((inside + 1))
        ;;
    0)
        runs=$((runs + 1))
        [ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "run $runs: other weights after $killed kills"
        rm -rf "$work/run"
        ;;
    *) cat "$work/err"; fail "exit status $code after $killed kills" ;;
    esac
done
expect 0 "$pstar" train "$work/mini.json" --resume
[ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after $killed kills"
# the folder looks as if nothing had happened
[ "$(grep -c '"loss":' "$work/run/metrics.jsonl")" -eq 30 ] || fail "metrics.jsonl has not one line a step"
grep '"loss":' "$work/run/metrics.jsonl" | cut -d, -f1-5 >"$work/a"
grep '"loss":' "$work/whole/metrics.jsonl" | cut -d, -f1-5 | cmp -s - "$work/a" || fail "other losses"
[ "$(ls -A "$work/run/checkpoints" | tr '\n' ' ')" = "latest step-000030 " ] ||
    fail "left over: $(ls -A "$work/run/checkpoints")"
ls "$work" | grep -q chunks && fail "a chunk file is left"
echo "$killed kills, $inside inside a save; $runs runs came to their end between them; a run takes $run_ms ms"
[ "$inside" -gt 0 ] || fail "no kill fell inside a save"
