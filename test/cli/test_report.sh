#!/bin/sh
# pstar report: the page opens in Chromium, draws everything, and shows names when pointed at.
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
# nothing outside is asked for
grep -oE '(src|href)=|@import|url\([^#]' "$work/report.html" && fail "the page needs another file"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "no chromium: the page is not opened"
    exit 77
}

# opens PROFILE: its page passes its own test
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
