#!/bin/sh
# Run every test of a build folder and count: the last line reads "N passed, N failed, N skipped".
#
# usage: test/run.sh BUILD_FOLDER [NAME_PATTERN]
# Test programs are cmocka mains (BUILD/test/*/test_*); test/cli/*.sh are scripts that get the build folder as $1 and
# succeed with 0, are skipped with 77. Each has a process and a time limit of its own.
set -u
build=$1
pattern=${2:-}
limit_s=${PS_TEST_LIMIT_S:-600}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0

count() { sed -n "s/^\[  $1 *\] \([0-9]*\) test(s).*/\1/p" "$log" | head -n 1; }

for t in $(ls "$build"/test/*/test_* 2>/dev/null | grep -v '\.[a-z]*$') $(ls test/cli/test_*.sh 2>/dev/null); do
    case $t in *"$pattern"*) ;; *) continue ;; esac
    begin=$(date +%s)
    case $t in
    *.sh) timeout "$limit_s" sh "$t" "$build" >"$log" 2>&1; rc=$? ;;
    *)    timeout "$limit_s" "$t" >"$log" 2>&1; rc=$? ;;
    esac
    seconds=$(($(date +%s) - begin))
    p=$(count PASSED) s=$(count SKIPPED) f=$(count FAILED)
    p=${p:-0} s=${s:-0} f=${f:-0}
    case $t in
    *.sh) case $rc in 0) p=1 ;; 77) s=1 rc=0 ;; *) f=1 ;; esac ;;
    *)    p=$((p > s ? p - s : 0)) ;; # cmocka 1.1 counts skipped tests as passed
    esac
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi # crash, time limit, sanitizer report
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -ne 0 ]; then
        printf 'FAIL  %s (%s s, status %s)\n' "$t" "$seconds" "$rc"
        tail -n 60 "$log" | sed 's/^/      /'
    else
        printf 'ok    %s (%s s%s)\n' "$t" "$seconds" "$([ "$s" -ne 0 ] && echo ", $s skipped")"
        grep -E '^(skipped|not tried): ' "$log" | sed 's/^/      /'
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
