#!/bin/sh
# pstar report: the pages of profiles and of runs open in Chromium, draw everything, and show names when pointed at.
# The page tests itself when its address ends in #selftest; Chromium prints what it found.
set -u
build=$1
. test/cli/cli_lib.sh

python3 test/report/make_profile.py "$work/profile.json" || fail "no profile"
expect 2 "$pstar" report
expect 2 "$pstar" report "$work/profile.json"
says err "-o FILE is needed"
expect 3 "$pstar" report "$work/absent.json" -o "$work/report.html"
expect 3 "$pstar" report "$work/profile.json" -o "$work/none/report.html"
head -c 5000 "$work/profile.json" >"$work/cut.json"
expect 2 "$pstar" report "$work/cut.json" -o "$work/report.html"
says err "cut.json:1:"
[ ! -e "$work/report.html" ] || fail "a page of a damaged profile"

expect 0 "$pstar" report "$work/profile.json" -o "$work/report.html"
says out "report.html"
# the log of a run, by its folder or its file; of a folder without one
expect 0 "$pstar" train "$work/tiny.json" train.steps=30 train.eval_interval=10 train.eval_steps=1 train.save_interval=15 \
    fp16.enabled=true bf16.enabled=false fp16.initial_scale_power=24 \
    train.output_dir="$work/logged"
expect 0 "$pstar" report "$work/logged" -o "$work/log.html"
expect 0 "$pstar" report "$work/logged/metrics.jsonl" -o "$work/same.html"
cmp -s "$work/log.html" "$work/same.html" || fail "a folder's page is not its file's"
mkdir "$work/empty"
expect 3 "$pstar" report "$work/empty" -o "$work/none.html"
says err "there is no metrics.jsonl in this folder"
sed 's/"loss":/"loss":"x",&/' "$work/logged/metrics.jsonl" >"$work/damaged.jsonl"
expect 2 "$pstar" report "$work/damaged.jsonl" -o "$work/none.html"
says err "damaged.jsonl:1:"

# nothing outside is asked for
grep -oE '(src|href)=|@import|url\([^#]' "$work/report.html" "$work/log.html" && fail "the page needs another file"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "no chromium: the page is not opened"
    exit 77
}

# opens PROFILE, or RUN: its page passes its own test
opens() {
    expect 0 "$pstar" report "$1" -o "$work/page.html"
    timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/browser" \
        --window-size=1400,2600 --enable-logging=stderr --virtual-time-budget=5000 --dump-dom \
        "file://$work/page.html#selftest" >"$work/dom" 2>"$work/log" || { cat "$work/log"; fail "chromium"; }
    sed -n '/<pre id="selftest">/,/<\/pre>/p' "$work/dom"
    grep -q 'checks, 0 failed' "$work/dom" || fail "the page's own test"
    ! grep 'CONSOLE' "$work/log" || fail "a message on the console"
    rm -rf "$work/browser"
}
opens "$work/profile.json"
grep -q "^ok chunk's name: PARAM16 0, 2.0 MB | transformer.h.0.attn.c_attn.weight" "$work/dom" || fail "no name of a chunk"

# of a simulated run, and of a training
expect 0 "$pstar" plan "$work/tiny.json" --profile "$work/simulated.json" memory.device=12MB memory.disk=200MB
opens "$work/simulated.json"
grep -q "Simulated:" "$work/page.html" || fail "not said that it is simulated"
expect 0 "$pstar" train "$work/tiny.json" profile.path="$work/trained.json" memory.device=12MB memory.disk=200MB
opens "$work/trained.json"
grep -q "^ok chunk's name: PARAM16 .* | transformer.wte.weight" "$work/dom" || fail "no name of a trained chunk"

# of the run's log: loss scale and skipped steps as well
opens "$work/logged"
grep -q "ok a step's values: step 16 | loss .* (smoothed " "$work/dom" || fail "no values of a step"
grep -q "ok drawn loss: raw, non-model, wait" "$work/dom" || fail "the loss is not drawn"
for figure in lr norm scale throughput peaks; do
    grep -q "ok drawn $figure: " "$work/dom" || fail "$figure is not drawn"
done
