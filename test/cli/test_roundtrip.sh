#!/bin/sh
# Hugging Face -> pstar, no step -> export -> Hugging Face: the same outputs, bit for bit, by the real classes. Needs an
# interpreter with transformers: $PS_TRANSFORMERS_PYTHON, or build/transformers (make test-data); skipped without.
set -u
build=$1
. test/cli/cli_lib.sh

python=${PS_TRANSFORMERS_PYTHON:-$root/build/transformers/bin/python}
[ -x "$python" ] || skip "no $python: make test-data makes it"

export TRANSFORMERS_VERBOSITY=error TRANSFORMERS_OFFLINE=1
expect 0 "$python" -W ignore test/golden/make_tiny_folders.py "$work/models"
set -- # pairs of folders
for model in "$work/models"/*; do
    name=$(basename "$model")
    cat >"$work/$name.json" <<END
{
  "model": {"from_pretrained": "$model"},
  "data": {"sequence_length": 16},
  "memory": {"device": "20MB", "host": 0, "disk": 0},
  "train": {"steps": 0, "output_dir": "$work/run-$name"}
}
END
    expect 0 "$pstar" train "$work/$name.json"
    expect 0 "$pstar" export "$work/run-$name" "$work/hf-$name" --max-shard-size 40KB
    # and as pytorch_model.bin, in one file or in shards
    expect 0 "$pstar" export "$work/run-$name" "$work/bin-$name" --format pt --max-shard-size 40KB
    set -- "$@" "$model" "$work/hf-$name" "$model" "$work/bin-$name"
done
expect 0 "$python" -W ignore test/golden/check_roundtrip.py "$@"
cat "$work/out"
[ "$(wc -l <"$work/out")" -eq $(($# / 2)) ] || fail "not all of $(($# / 2)) pairs were compared"
