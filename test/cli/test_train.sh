#!/bin/sh
# A run leaves metrics and a summary with all their keys; the same weights whatever the memory; resident memory within the
# budgets + 150 MB; Ctrl-C; generating from what was trained.
set -u
build=$1
. test/cli/cli_lib.sh

expect 0 "$pstar" train --overwrite "$work/tiny.json" train.eval_interval=2 train.eval_steps=2
for text in "validation loss" "trained   4 steps, 128 tokens in " "model     1.63 million parameters" "memory    device " "time      " "limit     "; do
    says out "$text"
done
grep -q "^at best\|^slower" "$work/out" && fail "times planned at the speeds of a typical PC"
grep '"loss":' "$work/run/metrics.jsonl" >"$work/steps"
[ "$(wc -l <"$work/steps")" -eq 4 ] || fail "metrics.jsonl has not one line a step"
for key in step loss lr grad_norm loss_scale skipped step_s tokens_per_s device_peak_bytes host_peak_bytes \
    disk_peak_bytes moved_bytes; do
    [ "$(grep -c "\"$key\":" "$work/steps")" -eq 4 ] || fail "metrics.jsonl lacks $key"
done
for key in weights_xxh3 parameters model_data_bytes device_budget_bytes host_budget_bytes disk_budget_bytes chunk_elements \
    chunk_waste rss_peak_bytes loss_first loss_last step_s step_computing_s step_waiting_s; do
    grep -q "\"$key\":" "$work/run/summary.json" || fail "summary.json lacks $key"
done
[ "$(summary "$work/run" parameters)" = 1634208 ] || fail "parameters: $(summary "$work/run" parameters)"
weights=$(summary "$work/run" weights_xxh3)
cut -d, -f1-5 "$work/steps" >"$work/losses"

# what is said and left; a key without effect is accepted, and reported
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.log_interval=2 train.save=false train.output_dir="$work/silent" \
    client.mem_tracer.use_async_mem_monitor=false
says out "step 2/4"
grep -q "step 3/4" "$work/out" && fail "a line each step with train.log_interval=2"
[ -e "$work/silent/model.safetensors" ] && fail "weights are saved with train.save=false"
says err "client.mem_tracer.use_async_mem_monitor: without effect, as memory is counted"

# the file's name says that it is text, the option that it is not
expect 2 "$pstar" train --overwrite "$work/tiny.json" data.format=jsonl train.output_dir="$work/jsonl"
says err "moby-dick.txt: line 1"

# logits: 4 bytes for each of 32 tokens and 50257 entries of the vocabulary, which go in sixteens
expect 0 "$pstar" train --overwrite "$work/tiny.json" memory.keep_logits=always train.output_dir="$work/kept" -v
says out "logits    kept for the backward pass, 6.43 MB"
[ "$(summary "$work/kept" kept_logits_bytes)" = 6434816 ] || fail "logits: $(summary "$work/kept" kept_logits_bytes)"
[ "$(summary "$work/kept" kept_logits_steps)" = 4 ] || fail "steps with logits: $(summary "$work/kept" kept_logits_steps)"
[ "$(summary "$work/kept" weights_xxh3)" = "$weights" ] || fail "other weights with logits kept"
expect 0 "$pstar" train --overwrite "$work/tiny.json" memory.keep_logits=never train.output_dir="$work/again" -v
says out "logits    computed again for the backward pass"
[ "$(summary "$work/again" kept_logits_steps)" = 0 ] || fail "logits kept that were not to be"

# a third of what the model data takes
expect 0 "$pstar" train --overwrite "$work/tiny.json" memory.device=6MB memory.host=1MB memory.disk=100MB train.output_dir="$work/small" -v
[ "$(summary "$work/small" weights_xxh3)" = "$weights" ] || fail "other weights with less memory"
grep '"loss":' "$work/small/metrics.jsonl" | cut -d, -f1-5 | cmp -s - "$work/losses" || fail "other losses with less memory"
[ "$(summary "$work/small" model_data_bytes)" -gt 22000000 ] || fail "model data"
[ "$(summary "$work/small" device_peak_bytes)" -le 6000000 ] || fail "device budget exceeded"
[ "$(summary "$work/small" host_peak_bytes)" -le 1000000 ] || fail "host budget exceeded"
[ "$(grep -c '"disk_processor_s": *0\.0*[1-9]' "$work/small/summary.json")" = 1 ] || fail "the disk's processor time is not counted"
says out "s of processor time"
says out "same RAM, nothing copied"
case $build in
*address*) ;; # a sanitizer has memory of its own
*) [ "$(summary "$work/small" rss_peak_bytes)" -le 157000000 ] || fail "resident: $(summary "$work/small" rss_peak_bytes)" ;;
esac
ls "$work" | grep -q chunks && fail "the chunk file is left: $(ls "$work")"

# Ctrl-C: the step ends, the files are written, and the exit status says what it was
begin "$pstar" train --overwrite "$work/tiny.json" train.steps=100000 train.output_dir="$work/stopped"
await "$work/stopped/metrics.jsonl"
# meanwhile no other run may have its folder
expect 1 "$pstar" train --overwrite "$work/tiny.json" train.output_dir="$work/stopped"
says err "another run is writing into $work/stopped (process $pid on $(uname -n)): wait for its end"
kill -INT $pid
ends 130
grep -q '"interrupted": true' "$work/stopped/summary.json" || fail "summary does not say interrupted"
[ -s "$work/stopped/model.safetensors" ] || fail "no weights after Ctrl-C"
says err "stops after the present step"
says out "run the same command with --resume"
begin "$pstar" train --overwrite "$work/tiny.json" train.steps=100000 train.output_dir="$work/stopped"
await "$work/stopped/metrics.jsonl"
kill -TERM $pid
ends 143
says out "stopped after step"
# not an exit with such a number, but the end by the signal itself
python3 - "$pstar" "$work" <<'END' || fail "not ended by the signal"
import os, signal, subprocess, sys, time
pstar, work = sys.argv[1:]
p = subprocess.Popen([pstar, "train", work + "/tiny.json", "train.steps=100000", "train.output_dir=" + work + "/signalled"],
                     stdout=subprocess.DEVNULL)
while not (os.path.exists(work + "/signalled/metrics.jsonl") and os.path.getsize(work + "/signalled/metrics.jsonl")):
    assert p.poll() is None
    time.sleep(0.05)
p.send_signal(signal.SIGTERM)
assert p.wait() == -signal.SIGTERM, p.returncode
END
# in the last step, which takes long as it is evaluated after it: the run is finished
begin "$pstar" train --overwrite "$work/tiny.json" train.steps=2 train.eval_interval=2 train.eval_steps=1000 train.output_dir="$work/last"
await "$work/last/metrics.jsonl"
sleep 0.3
kill -TERM $pid 2>/dev/null
ends 0
grep -q "stopped" "$work/out" && fail "stopped although train.steps were reached"
grep -q '"interrupted": false' "$work/last/summary.json" || fail "interrupted although train.steps were reached"
# and of the commands that use what was trained
begin "$pstar" eval "$work/tiny.json" --split train --weights "$work/run" --steps 5000
kill -TERM $pid
ends 143
says err "pstar eval: stopped after "
says err " of 10000 samples, without a result" # those of 5000 micro-batches, not the whole split
[ ! -s "$work/out" ] || fail "a result of a part"
begin "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 1000000 --weights "$work/run"
kill -INT $pid
ends 130
says out "Call me"
[ "$(tail -c 1 "$work/out" | od -An -tx1 | tr -d ' ')" = 0a ] || fail "no newline after a text that was stopped"

# a log has the lines of both outputs in their order
expect 3 "$pstar" train "$work/tiny.json" data.train="$work/absent.txt" train.output_dir="$work/absent"
says err "absent.txt: cannot open"
"$pstar" train "$work/tiny.json" data.train="$work/absent.txt" train.output_dir="$work/absent" >"$work/log" 2>&1
head -n 1 "$work/log" | grep -q '^results go to' || { cat "$work/log"; fail "stdout comes late"; }

# without any step there is no loss and no speed
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=0 train.output_dir="$work/none"
says out "trained   nothing: 0 steps"
grep -q "nan\|tokens/s" "$work/out" && { cat "$work/out"; fail "figures of no step"; }
[ -s "$work/none/model.safetensors" ] || fail "no weights of no step"
# and nothing to resume from: the weights and metrics of a run stay
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.steps=1 train.output_dir="$work/none"
cp "$work/none/model.safetensors" "$work/none/metrics.jsonl" "$work"
expect 2 "$pstar" train "$work/tiny.json" train.steps=0 train.output_dir="$work/none" --resume
says err "--resume with train.steps = 0 would begin again"
cmp -s "$work/none/model.safetensors" "$work/model.safetensors" || fail "weights of a run were written over"
cmp -s "$work/none/metrics.jsonl" "$work/metrics.jsonl" || fail "metrics of a run were written over"

# nothing is written through a link
mkdir "$work/linked"
echo precious >"$work/precious"
ln -s ../precious "$work/linked/metrics.jsonl"
expect 3 "$pstar" train "$work/tiny.json" train.steps=1 train.output_dir="$work/linked"
says err "is a link to another file"
[ "$(cat "$work/precious")" = precious ] || fail "written over: $work/precious"

# weights come back: same text for the same seed
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 20 --seed 3
says out "Call me"
cp "$work/out" "$work/text"
expect 0 "$pstar" generate "$work/tiny.json" --prompt "Call me" --tokens 20 --seed 3 --weights "$work/small/model.safetensors" \
    memory.device=8MB memory.disk=100MB
cmp -s "$work/out" "$work/text" || fail "other text from the same weights"
expect 0 "$pstar" train --overwrite "$work/tiny.json" train.init_from="$work/run/model.safetensors" train.steps=1 train.output_dir="$work/more"
[ "$(summary "$work/more" weights_xxh3)" != "$weights" ] || fail "no step was made"
expect 2 "$pstar" generate "$work/tiny.json" --prompt x --weights "$work/run/model.safetensors" model.n_layer=1
says err "is not one of the model's"
expect 2 "$pstar" generate "$work/tiny.json" --prompt x --weights "$work/run/model.safetensors" model.n_embd=64
says err "wte.weight"

# threads that the system does not give; sanitizers want more address space than any such limit leaves
case $build in
*address* | *thread*) ;;
*)
    expect 2 sh -c "ulimit -v 600000; exec '$pstar' train --overwrite '$work/tiny.json' train.threads=4096 memory.device=8MB"
    says err "train.threads = 4096: the system starts no more than "
    ;;
esac

# a model that does not fit: one line that says what would, and the table of memory only when asked for, before it
expect 2 "$pstar" train --overwrite "$work/tiny.json" memory.device=500KB
[ "$(wc -l <"$work/err")" -eq 1 ] || { cat "$work/err"; fail "more than the message"; }
says err "--verbose shows the use of memory"
expect 2 "$pstar" train --overwrite "$work/tiny.json" memory.device=500KB --verbose
[ "$(wc -l <"$work/err")" -gt 10 ] || fail "no table with --verbose"
tail -n 1 "$work/err" | grep -q "^pstar train: Does not fit: " || fail "the message is not last"
