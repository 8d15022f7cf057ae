#!/bin/sh
# pstar plan: what fits and what does not, text and JSON, hardware and its errors, profiles, the largest model.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" plan "$work/tiny.json"
for text in "Fits." "machine   this one" " parameters, " "memory    device " "time      " "tokens/s" "limit     " "Tables of memory and time: -v."; do
    says out "$text"
done
[ "$(wc -l <"$work/out")" -le 16 ] || { cat "$work/out"; fail "no short summary"; }
expect 0 "$pstar" plan "$work/tiny.json" -v
for text in "Fits." "memory at its peak" "parameters (bf16)" "fp32 parameters" "computing waits" "chunks  " "updates  " "at best     " "the plan takes "; do
    says out "$text"
done

# which of them computes, and the demo with the budget that doc/gpu.md gives it for both
demo=$(sed -n 's,^pstar train \(examples/demo.json .*\),\1,p' doc/gpu.md)
[ -n "$demo" ] || fail "doc/gpu.md has no command that trains the demo"
for hardware in "" laptop h100-128gb rtx4090-64gb; do
    computes=processor
    case $hardware in h100* | rtx*) computes=gpu ;; esac
    set -- hardware=none
    [ -z "$hardware" ] || set -- --hardware "$root/examples/hardware/$hardware.json"
    # shellcheck disable=SC2086 # words of the page
    (cd "$root" && expect 0 "$pstar" plan $demo "$@" --no-advice --json) || fail "the demo of doc/gpu.md does not fit: $hardware"
    says out "\"computes\": \"$computes\""
done
expect 0 "$pstar" plan "$work/tiny.json" hardware=none train.backend=cpu --no-advice
grep -q '^machine   this one, .*; the processor computes$' "$work/out" || fail "it is not said that the processor computes"
expect 0 "$pstar" plan "$work/tiny.json" --hardware "$root/examples/hardware/h100-128gb.json" --no-advice
grep -q '^machine   H100 .*; the GPU computes$' "$work/out" || fail "it is not said that the GPU computes"

# that no pattern of steps repeats is said: two budgets of one memory, and one that is all
for budgets in "memory.device=100MB memory.host=100MB memory.disk=4GB" "memory.device=1GB memory.host=0 memory.disk=0"; do
    expect 0 "$pstar" plan "$root/examples/demo.json" hardware= --no-advice --json $budgets
    round=true
    grep -q '"steps_go_round": true' "$work/out" || round=false
    expect 0 "$pstar" plan "$root/examples/demo.json" hardware= --no-advice -v $budgets
    said=true
    grep -q '^bytes are those of step 16; later steps may move others' "$work/out" && said=false
    [ "$said" = "$round" ] || fail "$budgets: go round: $round, and it says $said"
done
[ "$round" = true ] || fail "with all in memory steps go round"

# the numbers of the run, its bound too; of the description only rates, as this machine computes
sed '/"isa"/d; /"cores"/d' "$root/examples/hardware/laptop.json" >"$work/rates.json"
set -- hardware="$work/rates.json" memory.device=6MB memory.host=1MB memory.disk=100MB train.steps=16
expect 0 "$pstar" plan "$work/tiny.json" --json "$@"
cp "$work/out" "$work/plan.json"
expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" -v
says out "planned   "
says out "at best   "
python3 - "$work/plan.json" "$work/run/summary.json" "$work/run/metrics.jsonl" <<'EOT' || fail "the plan is not what happened"
import json, sys
plan, run = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
steps = [json.loads(line) for line in open(sys.argv[3])]
assert plan["fits"] is True and plan["parameters"] == run["parameters"]
for tier in ("device", "host", "disk"):
    assert plan["tiers"][tier]["peak_bytes"] == run[tier + "_peak_bytes"], tier
last = [s for s in steps if s.get("step") == plan["simulated_steps"] and "disk_read_bytes" in s]
assert last, plan["simulated_steps"]
for link, key in (("host->device", "host_to_device"), ("device->host", "device_to_host"), ("disk read", "disk_read"),
                  ("disk write", "disk_write")):
    assert plan["moved"][link]["bytes"] == last[0][key + "_bytes"], link
bound = plan["bound"]
assert bound["by"] in bound["parts"] and bound["seconds"] == max(bound["parts"].values()), bound
assert abs(bound["ratio"] * bound["seconds"] - plan["step"]["seconds"]) < 1e-6 and bound["ratio"] >= 1, bound
of_run = run["bound"]
assert of_run["by"] == bound["by"] and abs(of_run["bound_s"] - bound["seconds"]) < 1e-6, of_run
assert abs(of_run["planned_step_s"] - plan["step"]["seconds"]) < 1e-6, of_run
median = sorted(s["step_s"] for s in steps[3:] if "step_s" in s)
assert abs(of_run["step_s"] - median[6]) < 1e-9, (of_run, median)
EOT

# what is frozen: said, and saved as planned
freeze="train.freeze=*.w?e.weight,*.h.0.*"
expect 0 "$pstar" plan "$work/tiny.json" --json "$@"
cp "$work/out" "$work/all.json"
expect 0 "$pstar" plan "$work/tiny.json" "$@" "$freeze"
says out " of them trained (frozen: "
expect 0 "$pstar" plan "$work/tiny.json" --json "$@" "$freeze"
cp "$work/out" "$work/plan.json"
expect 0 "$pstar" train --overwrite "$work/tiny.json" "$@" "$freeze"
says out " of them trained, "
python3 - "$work/all.json" "$work/plan.json" "$work/run/summary.json" <<'EOT' || fail "the plan of what is frozen is not what happened"
import json, sys
all, plan, run = (json.load(open(path)) for path in sys.argv[1:])
assert all["trained_parameters"] == all["parameters"] == plan["parameters"] > plan["trained_parameters"] > 0
assert run["trained_parameters"] == plan["trained_parameters"]
frozen = plan["parameters"] - plan["trained_parameters"]
assert plan["model_data_bytes"] == all["model_data_bytes"] - 12 * frozen
for tier in ("device", "host", "disk"):
    assert plan["tiers"][tier]["peak_bytes"] == run[tier + "_peak_bytes"], tier
assert plan["step"]["compute_seconds"] < all["step"]["compute_seconds"]
EOT
expect 2 "$pstar" plan "$work/tiny.json" "train.freeze=*.h.9.*"
says err "matches none of the model's"

# when updates run: within the backward pass where that is allowed and faster, and not where it is not
set -- hardware=none memory.device=6MB memory.host=0 memory.disk=100MB train.max_nonfinite_steps=1 --no-advice
expect 0 "$pstar" plan "$work/tiny.json" "$@" gradient_clipping=0 memory.update_in_backward=always -v
says out ", within the backward pass: "
expect 0 "$pstar" plan "$work/tiny.json" "$@" gradient_clipping=0 memory.update_in_backward=always --json
says out '"updates_in_backward": true'
says out '"updates_deferred": false'
says out '"updated_before_use": 0,'
# some of each, where a disk is waited for
expect 0 "$pstar" plan "$root/examples/demo.json" "$@" hardware="$root/examples/hardware/laptop.json" \
    train_micro_batch_size_per_gpu=2 memory.device=80MB memory.disk=1GB gradient_clipping=0 -v
grep -E "^updates .* chunks a rank, [1-9][0-9]* within the backward pass, [1-9][0-9]* before the next forward" \
    "$work/out" > /dev/null || fail "no mix of updates: $(grep '^updates' "$work/out")"
expect 0 "$pstar" plan "$work/tiny.json" "$@" gradient_clipping=1 -v
! grep -q "within the backward pass" "$work/out" || fail "clipping needs the norm first"

# a plan for described GPUs needs no GPU here, and counts cuDNN's scratch where that is asked for
peak() {
    expect 0 "$pstar" plan "$root/examples/demo.json" --hardware "$root/examples/hardware/h100-128gb.json" --no-advice --json bf16.enabled=true \
        memory.device=auto memory.host=auto data.sequence_length=8192 model.n_positions=8192 train_micro_batch_size_per_gpu=1 model.n_embd=256 model.n_head=4 \
        model.vocab_size=300 model.n_layer=2 "$@"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tiers"]["device"]["peak_bytes"])' "$work/out"
}
own=$(peak train.attention=own) cudnn=$(peak train.attention=cudnn)
[ "$cudnn" -gt "$own" ] || fail "cuDNN's scratch: $cudnn, own kernels: $own"
expect 2 "$pstar" plan "$work/tiny.json" train.attention=cudnn train.backend=cpu
says err "train.attention = cudnn, but it is not a GPU that computes"

# a machine without a GPU that is described is planned for with its own processor and cores, whatever plans
laptop="$root/examples/hardware/laptop.json"
if PS_TEST_CPU=avx2 "$pstar" info >"$work/out" 2>&1; then
    expect 0 "$pstar" plan "$work/tiny.json" --json --hardware "$laptop"
    cp "$work/out" "$work/laptop.plan"
    for kind in avx2 avx512 intel-avx512_bf16 amd-avx512_bf16; do
        PS_TEST_CPU=$kind "$pstar" info >"$work/out" 2>&1 || continue
        expect 0 env PS_TEST_CPU=$kind taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" \
            "$pstar" plan "$work/tiny.json" --json --hardware "$laptop"
        cmp "$work/out" "$work/laptop.plan" || fail "planned by $kind, another plan"
    done
    expect 0 "$pstar" plan "$work/tiny.json" --json --hardware "$laptop" hardware.host.cores=7
    cmp -s "$work/out" "$work/laptop.plan" && fail "hardware.host.cores counts for nothing"
    expect 0 "$pstar" plan "$work/tiny.json" --json --hardware "$laptop" hardware.host.isa=portable
    cmp -s "$work/out" "$work/laptop.plan" && fail "hardware.host.isa counts for nothing"
fi
expect 2 env PS_TEST_CPU=portable "$pstar" plan "$work/tiny.json" --hardware "$laptop"
says err "host.isa = avx2 cannot be planned on this machine: "
says err "hardware.host.isa = portable"

# more memory than there is, here and on a machine that is described
expect 0 "$pstar" plan "$work/tiny.json" memory.device=900TB memory.host=900TB --no-advice
! grep -q "is refused" "$work/out" || fail "what is not used does no harm"
expect 2 "$pstar" plan "$work/tiny.json" memory.device=900TB model.n_embd=16384 model.n_head=128 model.n_layer=100 --no-advice
says out "Does not fit: a run here is refused: memory.device and memory.host: the plan takes "
says out "time      "
expect 2 "$pstar" plan "$work/tiny.json" --hardware "$root/examples/hardware/laptop.json" memory.device=900TB model.n_embd=4096 model.n_head=32 \
    model.n_layer=9 --no-advice
says out " of memory on a node, which has "

# as much disk as there is not: said as train says it, and only of this machine
set -- memory.device=5MB memory.host=0 memory.disk=900TB memory.disk_path=/proc train.steps=1
expect 2 "$pstar" plan "$work/tiny.json" "$@"
refusal=$(sed -n 's/^Does not fit: a run here is refused: //p' "$work/out")
case $refusal in "memory.disk_path = /proc has 0 B free, and the plan puts "*) ;; *) fail "not of the disk: $refusal" ;; esac
expect 2 "$pstar" train --overwrite "$work/tiny.json" "$@"
grep -qF "$refusal" "$work/err" || fail "plan and train differ"
expect 2 "$pstar" plan "$work/tiny.json" --json "$@"
says out '"machine_refusal": "memory.disk_path = /proc has '
expect 0 "$pstar" plan "$work/tiny.json" --hardware "$root/examples/hardware/laptop.json" "$@"
! grep -q "/proc" "$work/out" || fail "the disks of another machine"

# which batch would hide the disk
expect 0 "$pstar" plan "$work/tiny.json" memory.device=5MB memory.host=0 memory.disk=100MB
says out "computing would not wait for it"
expect 0 "$pstar" plan "$work/tiny.json" --json memory.device=5MB memory.host=0 memory.disk=100MB
python3 -c 'import json, sys; h = json.load(sys.stdin)["hides_disk"]; assert h["micro_batch"] > 1 and h["tokens_per_second"] > 0' <"$work/out" ||
    fail "hides_disk"
expect 0 "$pstar" plan "$work/tiny.json" memory.device=40MB memory.host=0 memory.disk=0
! grep -q "computing would not wait for it" "$work/out" || fail "there is no disk"

# changes that were found to fit
advised() { sed -n '/^one of /,$s/^\(one of \)* *\([^ ]*=[^ ]*\( [^ ]*=[^ ]*\)*\): .*/\2/p' "$work/out"; }

# too little: why, and what fits; every piece of advice can be typed
expect 2 "$pstar" plan "$work/tiny.json" memory.device=1MB memory.host=0 memory.disk=0
says out "Does not fit: "
change=$(advised | head -n 1)
[ -n "$change" ] || fail "no advice"
# shellcheck disable=SC2086
expect 0 "$pstar" plan "$work/tiny.json" memory.device=1MB memory.host=0 memory.disk=0 $change

# a total that the process alone takes, on this machine and another
set -- memory.device=auto memory.host=auto memory.disk=auto
for total in 1KB 20MB; do
    expect 2 "$pstar" plan "$work/tiny.json" "$@" memory="$total"
    says out "Does not fit: memory.total = "
    says out "the process itself takes "
    expect 2 "$pstar" plan "$work/tiny.json" "$@" memory="$total" --hardware examples/hardware/laptop.json --json
    says out '"fits": false'
done

# what a total that is too small is answered with, by a plan and by a run, is enough: at once, also where the process alone
# takes more
set -- "$@" memory.disk=0 model.n_embd=64
for total in 40MB 5MB; do
    expect 2 "$pstar" plan "$work/tiny.json" "$@" memory=$total
    change=$(advised | grep "^memory.total=" | head -n 1)
    [ -n "$change" ] || { cat "$work/out"; fail "no memory.total is advised"; }
    expect 0 "$pstar" plan "$work/tiny.json" "$@" "$change" --no-advice
    expect 2 "$pstar" train "$work/tiny.json" --overwrite "$@" memory=$total train.steps=1
    change=memory.total=$(named memory.total)
    [ "$change" != memory.total= ] || { cat "$work/err"; fail "the refusal names no memory.total"; }
    expect 0 "$pstar" train "$work/tiny.json" --overwrite "$@" "$change" train.steps=1
done
says_both="memory.total = 5 MB: the process itself takes .* of model data and the activations come on top"
expect 2 "$pstar" train "$work/tiny.json" --overwrite "$@" memory=5MB train.steps=1
grep -q "$says_both" "$work/err" || { cat "$work/err"; fail "not said: $says_both"; }

# beside a GPU the total is refused before there is a plan, as an error's text
expect 2 "$pstar" plan "$work/tiny.json" "$@" memory=10MB --sizes --hardware examples/hardware/a100-40gb-x8.json
says err "pstar plan: memory.total = 10 MB: the process itself takes "

# files that train would not find are named; the plan goes on, and one for a described machine says nothing of them
set -- data.train="$work/none.txt" data.validation="$work/tiny.json/x" data.tokenizer=org/none data.validation_split=0
expect 0 "$pstar" plan "$work/tiny.json" "$@" --no-advice
for key in data.train data.validation data.tokenizer; do
    grep -q "^pstar plan: $key: .*; a plan reads no data, but pstar train would stop there" "$work/err" ||
        { cat "$work/err"; fail "$key: a file that is not there is not named"; }
done
says err "$work/none.txt"
says err "hf download org/none"
expect 0 "$pstar" plan "$work/tiny.json" "$@" --no-advice --hardware examples/hardware/laptop.json
grep "data\." "$work/err" && fail "a described machine's files were looked for here"
expect 0 "$pstar" plan "$work/tiny.json" --no-advice
grep "data\." "$work/err" && fail "files that are there are named"
set --

# more than the described machine has, though budgets say that there is as much
set -- --hardware examples/hardware/laptop.json model.type=gpt2 model.n_embd=4096 model.n_head=32 model.n_layer=16 data.sequence_length=16
expect 2 "$pstar" plan "$work/tiny.json" "$@" memory.device=400GB --no-advice
says out "Does not fit: a run there is refused: the plan takes "
says out "of memory on a node, which has 17.2 GB"
expect 2 "$pstar" plan "$work/tiny.json" "$@" memory.device=400GB --no-advice --json
says out '"machine_refusal": "the plan takes '
expect 2 "$pstar" plan "$work/tiny.json" "$@" memory.device=15GB memory.disk=200GB --no-advice
says out ", which has 17.2 GB, of which 12.9 GB are not reserved"
# what it reserves is not to be had, and advice stays within what it has, in units, as typed
expect 0 "$pstar" plan "$work/tiny.json" "$@" memory.device=auto memory.host=auto memory.disk=auto --no-advice --json
python3 -c 'import json, sys; t = json.load(sys.stdin)["tiers"]; assert 8e9 < t["device"]["budget_bytes"] < 12.9e9, t' <"$work/out" ||
    fail "what the laptop reserves"
expect 0 "$pstar" plan "$work/tiny.json" "$@" memory.device=auto memory.host=auto memory.disk=auto --no-advice --json hardware.host.reserved_bytes=12GiB
python3 -c 'import json, sys; t = json.load(sys.stdin)["tiers"]; assert 3e9 < t["device"]["budget_bytes"] < 4.3e9, t' <"$work/out" ||
    fail "what the laptop reserves now"
expect 2 "$pstar" plan "$work/tiny.json" "$@" memory.device=9GB memory.host=0 memory.disk=1GB
advised >"$work/advice"
grep -q "memory.disk=[0-9.]*GB$" "$work/advice" || { cat "$work/out"; fail "no disk in units"; }
grep "[0-9]\{6\}" "$work/advice" && fail "a size without a unit"
while read -r change; do
    # shellcheck disable=SC2086 # words
    "$pstar" plan "$work/tiny.json" "$@" memory.device=9GB memory.host=0 memory.disk=1GB --no-advice $change >"$work/out" 2>&1 </dev/null ||
        { cat "$work/out"; fail "advice that does not fit: $change"; }
done <"$work/advice"

# a smaller micro-batch than train_batch_size was given for
set -- memory.device=8MB memory.host=0 memory.disk=100MB train_micro_batch_size_per_gpu=16 train_batch_size=16
expect 2 "$pstar" plan "$work/tiny.json" "$@"
change=$(advised | grep " train_batch_size=0$" | head -n 1)
[ -n "$change" ] || { cat "$work/out"; fail "no smaller micro-batch is advised"; }
# shellcheck disable=SC2086 # words
expect 0 "$pstar" plan "$work/tiny.json" "$@" --no-advice $change

# one list of what fits, with the least of each budget that suffices alone
hardware=examples/hardware/h200-128gb.json
set -- --hardware $hardware hardware.disk=null hardware.network=null memory.device=60MB memory.host=0 memory.disk=0 train_micro_batch_size_per_gpu=1 \
    activation_checkpointing.enabled=true client.opts.with_activation_offload=true
expect 2 "$pstar" plan "$work/tiny.json" "$@"
says out "Does not fit: "
! grep -q "One of: " "$work/out" || fail "two lists"
advised | grep -q "^memory.host=" || fail "no memory.host"
advised | grep -q "^memory.device=" || fail "no memory.device"

# nothing is searched for a model that all memory together cannot hold, and little for one that could
expect 2 "$pstar" plan "$work/tiny.json" --timeout 0 model.n_embd=65536 model.n_head=512 model.n_layer=300 memory.device=1GB memory.host=1GB memory.disk=1GB
says out " of model data, room for 3 GB (device 1 GB, host 1 GB, disk 1 GB)"
says out "No change was found that makes it fit: raise several budgets."
! grep -q "timed out" "$work/out" || fail "time was up"
expect 2 "$pstar" plan "$work/tiny.json" model.n_embd=1048576 model.n_head=4096 model.n_layer=65536
says err "more than 281474976710656 parameters with transformer.h."
for seconds in -1 0.5 99999999999 5s ""; do
    expect 2 "$pstar" plan "$work/tiny.json" --timeout "$seconds"
    says err "--timeout $seconds: give whole seconds from 0 to 2147483647"
done
for other in --sizes "--max-model gpt2"; do # which the time limit would not reach
    expect 2 "$pstar" plan "$work/tiny.json" --hardware examples/hardware/h200-128gb.json $other --timeout 5
    says err "--timeout"
done

# other machines
hardware=examples/hardware/h200-128gb.json
expect 0 "$pstar" plan "$work/tiny.json" --hardware $hardware memory.device=auto memory.host=auto
says out "machine   H200"
expect 0 "$pstar" plan "$work/tiny.json" --hardware examples/hardware/a100-40gb-x8.json hardware.n_nodes=2 memory.device=auto \
    memory.host=auto memory.disk=0 --profile "$work/simulated.json"
says out ", 16 ranks; figures are of rank 0"
says out "other ranks"
expect 0 "$pstar" report "$work/simulated.json" -o "$work/simulated.html"
grep -q "all-gather" "$work/simulated.html" || fail "no collectives in the report"
expect 0 "$pstar" plan "$work/tiny.json" --hardware $hardware --sizes
says out " parameters, "
says out " of activations and workspace at most"
expect 0 "$pstar" plan "$work/tiny.json" --sizes --json memory.device=1
grep -q '"activations_and_workspace_bytes": [1-9]' "$work/out" || fail "no size of activations"
expect 2 "$pstar" plan "$work/tiny.json" --hardware $hardware --sizes --max-model gpt2
says err "--sizes plans nothing"

# nonsense is refused with key and line
sed 's/"memory_bytes_per_s": [0-9.e]*/"memory_bytes_per_s": 0/' $hardware >"$work/zero.json"
expect 2 "$pstar" plan "$work/tiny.json" --hardware "$work/zero.json"
line=$(grep -n memory_bytes_per_s "$work/zero.json" | head -n 1 | cut -d : -f 1)
says err "$work/zero.json:$line:"
says err "device.memory_bytes_per_s"
sed 's/"to_host_bytes_per_s": [0-9.e]*/"to_host_bytes_per_s": -1/' $hardware >"$work/negative.json"
expect 2 "$pstar" plan "$work/tiny.json" --hardware "$work/negative.json"
says err "link.to_host_bytes_per_s"
sed '/"to_host_bytes_per_s"/d' $hardware >"$work/missing.json"
expect 2 "$pstar" plan "$work/tiny.json" --hardware "$work/missing.json"
says err "to_host_bytes_per_s"
expect 2 "$pstar" plan "$work/tiny.json" --hardware $hardware hardware.n_nodes=0
says err "n_nodes"
expect 2 "$pstar" plan "$work/tiny.json" --hardware $hardware hardware.disk=null memory.device=auto memory.host=auto memory.disk=100MB
says err "memory.disk = 100 MB, but 'H200, 128 GB host' has no disk: "
expect 0 "$pstar" plan "$work/tiny.json" --no-advice --hardware $hardware hardware.disk=null memory.device=auto memory.host=auto memory.disk=auto
expect 2 "$pstar" plan "$work/tiny.json" hardware.n_nodes=2
says err "no --hardware"
expect 2 "$pstar" plan "$work/tiny.json" --max-model gpt2
says err "--hardware"
expect 2 "$pstar" plan "$work/tiny.json" --hardware $hardware --max-model gpt9
says err "gpt9"
expect 3 "$pstar" plan "$work/tiny.json" --hardware "$work/absent.json"

# machines and models by name, and a folder that has only the model's config.json
while read -r preset parameters; do
    expect 0 "$pstar" plan --sizes --json "$preset"
    says out "\"parameters\": $parameters,"
done <<EOT
gpt2-xl 1557611200
llama-3.1-8b 8030261248
qwen3-0.6b 596049920
EOT
expect 0 "$pstar" plan --hardware laptop qwen3-0.6b --no-advice
cp "$work/out" "$work/by_name"
expect 0 "$pstar" plan --hardware "$root/examples/hardware/laptop.json" qwen3-0.6b --no-advice
cmp -s "$work/out" "$work/by_name" || fail "another plan for the laptop by name"
mkdir -p "$work/Qwen3-0.6B"
cat >"$work/Qwen3-0.6B/config.json" <<EOT
{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
 "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960, "model_type": "qwen3",
 "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
 "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": true, "vocab_size": 151936}
EOT
expect 0 "$pstar" plan --hardware laptop "$work/Qwen3-0.6B" --no-advice
cmp -s "$work/out" "$work/by_name" || fail "another plan for the folder"
expect 3 "$pstar" plan org/model
says err 'hf download org/model'
expect 3 "$pstar" plan --hardware laptopp qwen3-0.6b
says err "no machine known by name; expected a100-40gb-x8, "
# which of them has run
expect 0 "$pstar" plan --hardware rtx4090-64gb qwen3-0.6b --no-advice
says out "no GPU of this kind has run this yet"
expect 0 "$pstar" plan --hardware h100-128gb qwen3-0.6b --no-advice
says out "has run: "
grep -q -e "no GPU" -e "several GPUs" "$work/out" && fail "one H100 has run"
sed '/"gpus_per_node"/s/.*/"gpus_per_node": 2, "interconnect": {"bytes_per_s": 2e11, "latency_ns": 5000},/' \
    "$root/examples/hardware/h100-128gb.json" >"$work/two.json"
expect 0 "$pstar" plan --hardware "$work/two.json" qwen3-0.6b --no-advice
says out "; several GPUs have not yet"

# the largest model counts a disk that is used where memory does not suffice
largest() { expect 0 "$pstar" plan "$root/examples/scale.json" --hardware laptop --max-model gpt2 --json "$@"; }
largest memory.disk=0
without=$(sed -n 's/^ *"parameters": \([0-9]*\).*/\1/p' "$work/out" | head -n 1)
largest hardware.disk.bytes=20GB
with=$(sed -n 's/^ *"parameters": \([0-9]*\).*/\1/p' "$work/out" | head -n 1)
[ "$with" -gt $((without * 2)) ] || fail "the largest model is of $without parameters, and of $with with 20 GB of disk"

# planning starts no thread, however many it plans for
expect 0 "$pstar" plan "$work/tiny.json" train.threads=4096 memory.device=4GB

# folders that a run would make, planning does not
expect 0 "$pstar" plan "$work/tiny.json" --no-advice memory.disk=auto memory.disk_path="$work, $work/nope" train.output_dir="$work/made"
for made in nope made; do [ ! -e "$work/$made" ] || fail "planning has made $work/$made"; done

# in JSON, too: what is recomputed or offloaded, and which machine
expect 0 "$pstar" plan "$work/tiny.json" --no-advice --json hardware=none activation_checkpointing.enabled=true
says out '"speeds": "typical"'
says out '"activation_checkpointing": true'
says out '"activation_offload": false'
expect 0 "$pstar" plan "$work/tiny.json" --no-advice --json --hardware laptop activation_checkpointing.enabled=true \
    client.opts.with_activation_offload=true
says out '"speeds": "described"'
says out "\"name\": \"$(sed -n 's/^ *"name": "\(.*\)",*$/\1/p' "$root/examples/hardware/laptop.json")\""
says out '"activation_offload": true'
expect 0 env XDG_CACHE_HOME="$work/cache" "$pstar" plan "$work/tiny.json" --no-advice --json hardware=auto
says out '"speeds": "measured"'
