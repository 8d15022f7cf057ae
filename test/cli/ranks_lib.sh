# ranks_lib.sh - pstar train on several ranks; sourced with the build folder in $1, after set -u.
build=$1
. test/cli/skip_lib.sh
case $build in *thread*) skip "MPI is not built for that sanitizer" ;; esac
command -v mpirun.openmpi >/dev/null && [ -e "$build/libpatrickstar_openmpi.so" ] || skip "no Open MPI"
. test/cli/cli_lib.sh
. test/cli/kill_lib.sh
. test/cli/mpi_env.sh

# A run in f32 whose 12 micro-batches a step any number of ranks up to 4 can share.
cat >"$work/shared.json" <<EOT
{
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "gradient_clipping": 1.0,
  "model": {"vocab_size": 127, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
  "data": {"train": "$work/bytes.u16", "validation_split": 0.1},
  "memory": {"device": "4MB", "host": 0, "disk": 0, "disk_path": "$work"},
  "train": {"steps": 20, "threads": 1, "save": false, "output_dir": "$work/run", "log_interval": 1000},
  "comm": {"timeout_s": 3, "staging": "70KB"}
}
EOT

# train N MPI NAME CONFIG [key=value...]: N ranks share 12 micro-batches a step; results in $work/NAME, status in $rc
train() {
    n=$1 mpi=$2 name=$3 config=$4
    shift 4
    timeout -k 5 60 "mpirun.$mpi" -np "$n" "$pstar" train "$work/$config.json" \
        gradient_accumulation_steps=$((12 / n)) train.output_dir="$work/$name" "$@" >"$work/out" 2>"$work/err"
    rc=$?
    [ $rc -ne 124 ] || { cat "$work/out" "$work/err"; fail "$name does not end"; }
}
trained() {
    train "$@"
    [ $rc -eq 0 ] || { cat "$work/out" "$work/err"; fail "status $rc: $*"; }
}
weights() { summary "$work/$1" weights_xxh3; }
# near A B BOUND [FIRST]: losses of metrics.jsonl, from step FIRST on
near() {
    python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" "$3" "${4:-1}" <<'EOP' || fail "losses of $1 and $2"
import json, sys
a, b = ([l for l in map(json.loads, open(p)) if "loss" in l] for p in sys.argv[1:3])
first = int(sys.argv[4])
a, b = ([l for l in x if l["step"] >= first] for x in (a, b))
assert [l["step"] for l in a] == [l["step"] for l in b] and a, "not the same steps"
off = max(abs(x["loss"] / y["loss"] - 1) for x, y in zip(a, b))
assert off <= float(sys.argv[3]), f"losses are off by {off}"
EOP
}
