#!/bin/sh
# Are models the same to transformers after they went through pstar? For each folder of make_tiny_folders.py:
#
#   folder -> pstar export -> folder                     the weights as they are
#   folder -> pstar train, learning rate 0 -> export     language models only: they need no tokenizer
#
# usage: test/golden/roundtrip.sh PYTHON [PSTAR]       PYTHON has torch and transformers (tool/transformers_venv.sh makes one)
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${1:?PYTHON}
pstar=${2:-build/pstar}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1

n_failed=0
same() { # NAME A B
    printf '%-30s ' "$1"
    "$python" -W ignore "$here/check_roundtrip.py" "$2" "$3" 2>&1 || n_failed=$((n_failed + 1))
}
try() { # PSTAR'S ARGUMENTS...
    "$pstar" "$@" >"$work/log" 2>&1 && return 0
    printf '%-30s pstar %s\n' "$name" "$*"
    cat "$work/log"
    n_failed=$((n_failed + 1))
    return 1
}

"$python" -W ignore "$here/make_tiny_folders.py" "$work/hf" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$python" -c "import random, struct
random.seed(3)
open('$work/tokens.u16', 'wb').write(b''.join(struct.pack('<H', random.randrange(61)) for _ in range(400)))"

for folder in "$work"/hf/*; do
    name=$(basename "$folder")
    cat >"$work/$name.json" <<EOF
{"train_micro_batch_size_per_gpu": 2, "model": {"from_pretrained": "$folder"},
 "data": {"train": "$work/tokens.u16", "sequence_length": 16}, "optimizer": {"type": "AdamW", "params": {"lr": 0}},
 "memory": {"device": "64MB", "host": 0, "disk": 0}, "train": {"steps": 1, "output_dir": "$work/run_$name"}}
EOF
    for file in model.safetensors pytorch_model.bin; do
        [ -f "$folder/$file" ] || continue
        try export -c "$work/$name.json" "$folder/$file" "$work/$name.out" &&
            same "$name" "$folder" "$work/$name.out"
    done
    case $name in
    gpt2 | gpt2_bin | llama* | mistral* | qwen*)
        try train "$work/$name.json" &&
            try export -c "$work/$name.json" "$work/run_$name/model.safetensors" "$work/$name.trained" &&
            same "$name, trained" "$folder" "$work/$name.trained" ;;
    esac
done
[ $n_failed -eq 0 ] && echo "roundtrip: all the same" && exit 0
echo "roundtrip: $n_failed failed"
exit 1
