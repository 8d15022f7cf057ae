#!/bin/sh
# make gpu-bench over the fake driver: each part ends with its table, of which what can be reckoned is; its rows by runs
# and peers that are made up here, worked out by hand; and the tables of doc/ are what the programs say.
# usage: test/cli/test_gpu_bench.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
row=$build/bench/gpu_row
h100=examples/hardware/h100-128gb.json

# ---- rows ----
# 100 M parameters, 8 layers of 1024, 4 sequences of 2048, twice: 16384 tokens of 700663296 FLOP; 3 of 4 updates on the host
cat >"$work/plan.json" <<'X'
{"parameters": 100000000, "micro_batch": 4, "sequence_length": 2048, "gradient_accumulation_steps": 2, "fits": true,
 "chunks": {"updated_on_host": 3, "of_a_rank": 4}, "step": {"seconds": 0.5},
 "moved": {"host->device": {"bytes": 4e9}, "device->host": {"bytes": 1e9}, "disk read": {"bytes": 0}, "disk write": {"bytes": 0}},
 "tiers": {"device": {"peak_bytes": 3000000000}, "host": {"peak_bytes": 2000000000}}}
X
cat >"$work/hardware.json" <<'X'
{"name": "NVIDIA H100 80GB HBM3", "device": {"bf16": {"flop_per_s": 80e12, "achievable_fraction": 0.5}}, "host": {"memory_bytes_per_s": 100e9},
 "link": {"to_device_bytes_per_s": 50e9, "to_host_bytes_per_s": 50e9, "full_duplex": true}}
X
echo '{"bf16": {"enabled": true}, "model": {"n_layer": 8, "n_embd": 1024, "n_head": 16}}' >"$work/config.json"
mkdir "$work/a" "$work/b" "$work/ended"
# three that do not count, then 0.4, 0.6; and in the second run 0.5, 0.7, 0.8: the median is 0.6
for s in 9 9 9 0.4 0.6; do echo "{\"step\":1,\"step_s\":$s}"; done >"$work/a/metrics.jsonl"
for s in 9 9 9 0.5 0.7 0.8; do echo "{\"step\":1,\"step_s\":$s}"; done >"$work/b/metrics.jsonl"
echo '{"step":1,"checkpoint":"x","seconds":1}' >>"$work/b/metrics.jsonl"
for s in 8 0.5; do echo "{\"step\":1,\"step_s\":$s}"; done >"$work/ended/metrics.jsonl"
echo '{"device_peak_bytes": 3000000000, "planned_device_peak_bytes": 3000000000, "host_peak_bytes": 2000000000, "planned_host_peak_bytes": 2000000001}' >"$work/b/summary.json"
cp "$work/b/summary.json" "$work/a/"
echo '{"seconds": [1.2, 1.1, 1.3], "peak_bytes": 5000000000}' >"$work/peer"
row() { expect 0 "$row" name "$work/plan.json" "$work/hardware.json" "$work/config.json" "$@"; }
row --run "$work/a" --run "$work/b" --peer torch "$work/peer" --failed other 'no memory'
# 16384 / 0.6 = 27307; x 700663296 / 989.5e12 = 1.9 %; 16384 x 700663296 / 80e12 = 0.1435, a quarter of 0.6, and half the rate; 0.5 / 0.6 = 0.83
says out '| name | ours | 16384 | 0.6000 (0.4000..0.8000) | 27307 | 1.9 % | 0.1435 / 0.2870, GEMMs | 0.24 / 0.48 | 0.5000 | 0.83 | 3 GB, as planned | **2000000000 bytes, planned 2000000001** |'
says out '| name | torch | 16384 | 1.2000 (1.1000..1.3000) | 13653 | 1.0 % | ours is 2.00 x as fast | | | | 5 GB | |'
says out '| name | other: no memory |'
row --run "$work/ended"
says out '| ours | 16384 | 0.5000 (0.5000..0.5000) | 32768 |'
says out 'not told: it was ended'
row activation_checkpointing.enabled=true
says out '| ours, as planned | 16384 | 0.5000 | 32768 | 2.3 % | 0.1913 / 0.3827, GEMMs | 0.38 / 0.77 |' # 8/6 as much to compute
# 28 bytes of 3/4 of the parameters and what is moved, 2.1e9 + 5e9, through memory of 10 GB/s
sed -i 's/100e9/10e9/' "$work/hardware.json"
row
says out '0.7100 / 0.7100, host memory | 1.42 / 1.42 |'
sed -i 's/"fits": true/"fits": false/' "$work/plan.json"
expect 1 "$row" name "$work/plan.json" "$work/hardware.json" "$work/config.json"
says err 'does not fit'

# ---- each part ----
# cell FILE MODEL NUMBER: of the first row of ours
cell() { sed -n "s/^| $2 | ours | //p" "$1" | head -n 1 | awk -F ' \\| ' -v n="$3" '{ print $n }' | tr -dc '0-9.eE, ()'; }
near() { awk -v a="$1" -v b="$2" -v o="$3" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 0 && d <= o) }' || fail "$4: $1, reckoned $2"; }
# In place of PyTorch: takes 0.5 s a step, and cannot compile the last model.
cat >"$work/python" <<'X'
#!/bin/sh
[ "$1" != -c ] || { echo '2.11.0|No GPU'; exit; }
case $2,$3 in
*qwen2-7b*,*compile) echo "RuntimeError: no compiler | at all"; exit 1 ;;
esac
[ "$1" = bench/gpu_peer.py ] && [ -f "$2" ] && echo '{"seconds": [0.5, 0.4, 0.6], "peak_bytes": 7000000000}' >"$5"
X
chmod +x "$work/python"
for part in resident offloaded largest; do
    out=$work/$part.md
    # resident: what fails is said by the status too
    FAKE=1 PYTHON=$work/python sh tool/gpu_bench.sh $part "$build" "$out" >"$work/said" 2>&1
    status=$?
    [ "$status" -eq "$([ $part = resident ] && echo 1 || echo 0)" ] || { tail -n 40 "$work/said"; fail "gpu_bench.sh $part: status $status"; }
    case $part in
    resident) models='qwen2-1.5b gpt2-124m qwen2-7b' ;;
    offloaded) models=llama-13b ;;
    largest) models=largest ;;
    esac
    for model in $models; do
        [ "$(grep -c "^| $model | ours | 16 | .* as planned | .* as planned |$" "$out")" = 1 ] || { grep -v '^| [a-z]*_' "$out"; fail "$part: no row of $model, or peaks beside the plan"; }
        seconds=$(cell "$out" $model 2 | sed 's/ .*//')
        near "$(cell "$out" $model 3)" "$(awk -v s="$seconds" 'BEGIN { print 16 / s }')" "$(awk -v s="$seconds" 'BEGIN { print 0.5 + 0.001 / s / s }')" "tokens/s of $model"
        near "$(cell "$out" $model 8)" "$(awk -v p="$(cell "$out" $model 7)" -v s="$seconds" 'BEGIN { print p / s }')" 0.02 "planned / measured of $model"
    done
    grep -q 'fake driver' "$out" || fail "$part: it is not said that this was no GPU"
    grep -q 'FAILED' "$out" && fail "$part: $(grep FAILED "$out")"
done
for model in qwen2-1.5b gpt2-124m; do
    seconds=$(cell "$work/resident.md" $model 2 | sed 's/ .*//')
    times=$(sed -n "s/^| $model | PyTorch,autocast+compile | 16 | 0.5000 (0.4000..0.6000) | 32 | - | ours is \([0-9.]*\) x as fast | | | | 7 GB | |\$/\1/p" "$work/resident.md")
    [ -n "$times" ] || { cat "$work/resident.md"; fail "no row of $model's peer"; }
    near "$times" "$(awk -v s="$seconds" 'BEGIN { print 0.5 / s }')" "$(awk -v s="$seconds" 'BEGIN { print 0.01 + 0.0001 / s / s }')" "how much faster $model is"
done
grep -qF '| qwen2-7b | PyTorch,autocast+compile: RuntimeError: no compiler   at all | |' "$work/resident.md" || { cat "$work/resident.md"; fail "it is not said why the peer failed"; }
grep -q '^| qwen2-7b | PyTorch,autocast | 16 | 0.5000 ' "$work/resident.md" || { cat "$work/resident.md"; fail "no peer without compiling"; }
grep -q '^| PyTorch | 2.11.0 |$' "$work/resident.md" || fail "PyTorch's version is not named"
grep -q '^| attention_bwd .*| 2 x 32 ' "$work/resident.md" || fail "no operators"
grep '^| llama-13b | ours ' "$work/offloaded.md" | grep -q '| 0 GB, as planned |$' && fail "nothing was offloaded"
grep -q 'largest GPT-2 that fits .* parameters' "$work/largest.md" || fail "the largest model is not named"

# where there is no time, a table all the same
FAKE=1 GPU_BENCH_S=6 sh tool/gpu_bench.sh resident "$build" "$work/short.md" >"$work/said" 2>&1
grep -q '^| processor |' "$work/short.md" || fail "no table when the time is over"
expect 2 sh tool/gpu_bench.sh all "$build"
says err "PART 'all' is none of"

# ---- the tables of doc/ ----
"$build/bench/bench_op" --table --backend cuda --hardware $h100 | sed -n '2,$p' >"$work/operators"
sed -n '/^<!-- bench_op/,/^<!-- end/p' doc/gpu-kernels.md | sed '1d;$d' | diff - "$work/operators" ||
    fail "doc/gpu-kernels.md is not what bench_op --table says: sh tool/gpu_tables.sh $build"
expect 1 "$build/bench/bench_op" --table --backend cuda --hardware $h100 1 layernom
says err "no operator's name contains 'layernom'; expected a part of one of: linear_fwd "
expect 0 "$build/bench/bench_op" --table --backend cuda --hardware $h100 1 layernorm
expect 0 sh tool/gpu_tables.sh "$build" --planned gpt2-124m
[ "$(grep -c '^| gpt2-124m | H[12]00 | 32768 | .* % | ' "$work/out")" = 2 ] || { cat "$work/out"; fail "no plans for H100 and H200"; }

# ---- the peer, where there is PyTorch ----
python=
for one in build/torch/bin/python python3 /usr/bin/python3; do
    [ -n "$python" ] || ! "$one" -c 'import torch' 2>/dev/null || python=$one
done
[ -n "$python" ] || { untried "the peer, which needs PyTorch"; finish; }
for model in gpt2-124m qwen2-0.5b llama-13b; do
    set -- model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=2 model.vocab_size=128 model.max_position_embeddings=16 \
        data.sequence_length=16 train_micro_batch_size_per_gpu=2
    [ $model = gpt2-124m ] || set -- "$@" model.num_key_value_heads=1 model.intermediate_size=48
    expect 0 "$python" bench/gpu_peer.py bench/gpu/$model.json autocast 2 "$work/peer.json" "$@" device=cpu
    expect 0 "$pstar" plan bench/gpu/$model.json --sizes --json "$@" train.backend=cpu
    theirs=$(sed 's/.*"parameters": \([0-9]*\).*/\1/' "$work/peer.json")
    [ "$theirs" = "$(sed -n 's/^ *"parameters": \([0-9]*\),$/\1/p' "$work/out")" ] || fail "$model: the peer has $theirs parameters, ours $(cat "$work/out")"
    awk -v l="$(sed 's/.*"loss": \([0-9.]*\).*/\1/' "$work/peer.json")" 'BEGIN { exit !(l > 3 && l < 6) }' || fail "$model: loss of $(cat "$work/peer.json"), expected about log(128) = 4.85"
done
