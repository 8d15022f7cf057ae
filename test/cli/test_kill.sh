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

killed=0 inside=0 started=0

# So many kills, with states of the optimizer in this format, and further options.
kill_with() {
    n_here=$1 format=$2
    shift 2
    sed "s/\"lr\": 0.003/&, \"state_format\": \"$format\"/" "$work/mini.json" >"$work/$format.json"
    rm -rf "$work/run" "$work/whole"
    expect 0 "$pstar" train "$work/$format.json" train.output_dir="$work/whole" "$@"
    expected=$(summary "$work/whole" weights_xxh3)
    n_lines=$(grep -c '"loss":' "$work/whole/metrics.jsonl")
    [ "$n_lines" -eq 30 ] || fail "$n_lines lines of steps"

    # how long a run takes, so that kills fall everywhere in it
    begin=$(date +%s%N)
    expect 0 "$pstar" train "$work/$format.json" --resume "$@"
    run_ms=$((($(date +%s%N) - begin) / 1000000))
    [ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights without a kill"
    rm -rf "$work/run"

    killed_here=0 runs=0
    while [ "$killed_here" -lt "$n_here" ]; do
        started=$((started + 1))
        delay=$(awk -v seed="$seed" -v n="$started" -v ms="$run_ms" \
            'BEGIN { srand(seed * 100003 + n); printf "%.4f", rand() * ms * 0.7 / 1000 }')
        "$pstar" train "$work/$format.json" --resume "$@" >"$work/out" 2>"$work/err" &
        pid=$!
        sleep "$delay"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
        case $code in
        137)
            killed=$((killed + 1)) killed_here=$((killed_here + 1))
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
    expect 0 "$pstar" train "$work/$format.json" --resume "$@"
    [ "$(summary "$work/run" weights_xxh3)" = "$expected" ] || fail "other weights after $killed kills"
    # the folder looks as if nothing had happened
    [ "$(grep -c '"loss":' "$work/run/metrics.jsonl")" -eq 30 ] || fail "metrics.jsonl has not one line a step"
    grep '"loss":' "$work/run/metrics.jsonl" | cut -d, -f1-5 >"$work/a"
    grep '"loss":' "$work/whole/metrics.jsonl" | cut -d, -f1-5 | cmp -s - "$work/a" || fail "other losses"
    [ "$(ls -A "$work/run/checkpoints" | tr '\n' ' ')" = "latest step-000030 " ] ||
        fail "left over: $(ls -A "$work/run/checkpoints")"
    ls "$work" | grep -q chunks && fail "a chunk file is left"
}

kill_with $((n_kills / 4)) fp32 gradient_clipping=1.3
fp32=$expected
# while updates are speculative: what is kept of before them is not of the last checkpoint, and lost with the process
kill_with $((n_kills / 4)) fp32 gradient_clipping=1.3 memory.device=250KB default_chunk_size=2048 \
    hardware=test/engine/balanced_disk.json memory.update_in_backward=speculate
[ "$expected" = "$fp32" ] || fail "speculative updates have other bits"
taken_back=$(summary "$work/whole" taken_back_steps)
[ "$taken_back" -gt 0 ] && [ "$taken_back" -lt 29 ] || fail "$taken_back of 29 steps were taken back"
recomputed=$(summary "$work/whole" recomputed_steps)
[ "${recomputed:-0}" -eq "$(grep -c '"recomputed"' "$work/whole/metrics.jsonl")" ] || fail "$recomputed steps recomputed"
kill_with $((n_kills / 4)) compact
[ "$expected" != "$fp32" ] || fail "compact states have the bits of fp32"
kill_with $((n_kills / 4)) fp32 optimizer.type=Muon optimizer.params.lr=0.003
[ "$expected" != "$fp32" ] || fail "Muon has the bits of AdamW"
kill_with $((n_kills / 4)) bf16_stochastic bf16.enabled=true
echo "$killed kills, $inside inside a save, with fp32 states, speculative updates, compact states, Muon and random" \
    "rounding; a run takes $run_ms ms"
[ "$inside" -gt 0 ] || fail "no kill fell inside a save"
