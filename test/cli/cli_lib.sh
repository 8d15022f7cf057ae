# cli_lib.sh - helpers for the scripts that try pstar as a user does; sourced with the build folder in $build.
# Each script runs in a temporary folder of its own, removed at the end.
. test/cli/skip_lib.sh
root=$PWD
pstar=$root/$build/pstar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# expect CODE COMMAND...: run it, keep its output in $work/out and $work/err, compare the exit status
expect() {
    want=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" -eq "$want" ] || { cat "$work/out" "$work/err"; fail "exit status $got instead of $want: $*"; }
}

# begin COMMAND...: run it in the background, with its output in the same files; returns, with its number in $pid, once it
# catches SIGTERM
begin() {
    "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    until caught=$(sed -n 's/^SigCgt:[^0-9a-f]*//p' /proc/$pid/status) && [ $((0x${caught:-0} >> 14 & 1)) -eq 1 ]; do
        kill -0 $pid 2>/dev/null || { cat "$work/out" "$work/err"; fail "ended by itself: $*"; }
        sleep 0.05
    done
}

# ends CODE: what has begun ends, with this exit status
ends() {
    wait $pid
    got=$?
    [ "$got" -eq "$1" ] || { cat "$work/out" "$work/err"; fail "exit status $got instead of $1"; }
}

# await FILE: until what has begun has written something there
await() {
    while [ ! -s "$1" ]; do
        kill -0 $pid 2>/dev/null || { cat "$work/out" "$work/err"; fail "ended by itself"; }
        sleep 0.05
    done
}

# in_own_mounts SCRIPT: run it where it can mount; status 77 where that cannot be had
in_own_mounts() {
    if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
        unshare -m sh "$1"
    elif unshare -rm true 2>/dev/null; then
        unshare -rm sh "$1"
    else
        return 77
    fi
}

# says FILE TEXT: the output ("out" or "err") contains the text
says() { grep -qF -- "$2" "$work/$1" || { cat "$work/$1"; fail "not said on $1: $2"; }; }

# named OPTION: the size that the message in $work/err gives it, "133MB"
named() { sed -n "s/.*[ :]$1=\([0-9.]*[0-9][kMGT]\{0,1\}B\).*/\1/p" "$work/err"; }

# below SIZE: bytes less than the smallest size that is rounded up to it
below() {
    python3 -c 'import sys; n = sys.argv[1]
print(int(float(n.rstrip("kMGTB")) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(n[-2:-1], 1) * 0.99) - 4096)' "$1"
}

# The value of a key in a summary, as text.
summary() { sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" "$1/summary.json" | head -n 1; }

# A tiny model with the real vocabulary: 3.3 MB of parameters in bf16, seconds to train.
cat >"$work/tiny.json" <<EOF
{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "bf16": {"enabled": true},
  "model": {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
  "data": {"train": "$root/data/text/moby-dick.txt", "tokenizer": "$root/data/gpt2", "validation_split": 0.1},
  "memory": {"device": "100MB", "host": 0, "disk": 0, "disk_path": "$work"},
  "train": {"steps": 4, "output_dir": "$work/run"}
}
EOF
