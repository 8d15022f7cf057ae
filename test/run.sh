#!/bin/sh
# Run every test of a build folder and count: the last line reads "N passed, N failed, N skipped".
#
# usage: test/run.sh BUILD_FOLDER [NAME_PATTERN]
# Beside each are seconds of a clock and of processors; before the last line, the ten tests that take most of the latter.
# Test programs are cmocka mains (BUILD/test/*/test_*); test/cli/*.sh are scripts that get the build folder as $1 and
# succeed with 0, are skipped with 77; python/test/test_*.py are tests of the package for PyTorch (python/test/run.py),
# by Debian's PyTorch, with transformers, too, where `make test-data` has made that. Each has a process and a time
# limit of its own.
#   PS_TEST_JOBS     how many run at once; one more than there are processors, as some wait, and four at most
#   PS_PYTHON        the interpreter of python/test, another one than that
#   PS_TEST_LONG     set: all cases of python/test, more of the calls in fault/test_engine_faults; under sanitizers and
#                    with PS_TEST_CPU all variations that is_my_share (test/engine/backends.h) would else take a third of
#   PS_TEST_LIMIT_S  a test that takes longer has failed
#   PS_TEST_ONLY, PS_TEST_LEAVE  files with a test a line ("comm/test_comm", "cli/%"; # begins a comment): only these;
#                    all but these, each line of which counts as skipped
#   PS_TEST_CPUS     kinds of processors ("portable avx2", src/kernel/cpu_kind.h): each test is run once as on each of
#                    them, but for this machine's own, and counts as skipped where this machine cannot execute one
set -u
cd "$(dirname "$0")/.." || exit 2

# Of all groups of tests in a log together; nothing where there is none.
count() { sed -n "s/^\[  $2 *\] \([0-9]*\) test(s).*/\1/p" "$1" | awk '{ n += $1 } END { if (NR) print n }'; }

# Seconds of processors, of all ended children: between two outputs of `times`, of two lines each.
cpu_seconds() {
    awk '{ for (i = 1; i <= 2; i++) { split($i, t, "m"); s[int((NR - 1) / 2)] += (NR % 2 ? 0 : t[1] * 60 + t[2]) } }
        END { printf "%.0f", s[1] - s[0] }'
}

# One test ("PATH", or "PATH@KIND of processor"), with its output in one piece and its counts in a file of $results.
run_one() {
    log=$results/$(echo "$2" | tr / _)
    name=$2
    case $2 in *@*) export PS_TEST_CPU="${2#*@}"; name="${2%@*} as on $PS_TEST_CPU"; set -- "$1" "${2%@*}" ;; esac
    begin=$(date +%s)
    times >"$log.times"
    case $2 in
    *.sh) timeout "$limit_s" sh "$2" "$1" >"$log" 2>&1; rc=$? ;;
    *.py) timeout -k 10 "$limit_s" "$python" -W ignore python/test/run.py "$1" "$2" >"$log" 2>&1; rc=$? ;;
    *)    timeout "$limit_s" "$2" >"$log" 2>&1; rc=$? ;;
    esac
    seconds=$(($(date +%s) - begin))
    times >>"$log.times"
    cpu=$(cpu_seconds <"$log.times")
    p=$(count "$log" PASSED) s=$(count "$log" SKIPPED) f=$(count "$log" FAILED)
    p=${p:-0} s=${s:-0} f=${f:-0}
    case $2 in
    *.sh) case $rc in 0) p=1 ;; 77) s=1 rc=0 ;; *) f=1 ;; esac ;;
    *.py) if [ "$rc" -eq 77 ]; then s=1 rc=0; else p=$((p > s ? p - s : 0)); fi ;;
    *)    p=$((p > s ? p - s : 0)) ;; # cmocka 1.1 counts skipped tests as passed
    esac
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi # crash, time limit, sanitizer report
    echo "$p $f $s" >"$log.counts"
    echo "$cpu $seconds $name" >"$log.cost"
    if [ "$f" -ne 0 ]; then
        printf 'FAIL  %s (%s s, cpu %s s, status %s)\n%s\n' "$name" "$seconds" "$cpu" "$rc" "$(tail -n 60 "$log" | sed 's/^/      /')"
    else
        remarks=$(grep -E '^(skipped|not tried): ' "$log" | sed 's/^/\n      /' | tr -d '\000')
        printf 'ok    %s (%s s, cpu %s s%s)%s\n' "$name" "$seconds" "$cpu" "$([ "$s" -ne 0 ] && echo ", $s skipped")" "$remarks"
    fi
}

if [ "${1:-}" = --one ]; then
    run_one "$2" "$3"
    exit 0
fi

build=$1
pattern=${2:-}
limit_s=${PS_TEST_LIMIT_S:-1200}
jobs=${PS_TEST_JOBS:-$(n=$(nproc); echo $((n < 4 ? n + 1 : 4)))}
results=$(mktemp -d)
python=${PS_PYTHON:-$PWD/build/transformers/bin/python}
[ -x "$python" ] || python=/usr/bin/python3
export limit_s results python
for list in ${PS_TEST_ONLY:-} ${PS_TEST_LEAVE:-}; do
    [ -r "$list" ] || { echo "$list: no such list of tests" >&2; exit 2; }
done
# Rates of no particular PC, whatever this machine is and does meanwhile; what is kept is not the user's.
export PSTAR_HARDWARE=none XDG_CACHE_HOME="$results/cache"
# More threads run than there are processors: PyTorch's are not to spin where others could compute.
export OMP_WAIT_POLICY=passive
trap 'rm -rf "$results"' EXIT

# The short name of each test, as the lists have it, before its path.
all_tests() {
    ls "$build"/test/*/test_* 2>/dev/null | grep -v '\.[a-z]*$' | sed "s|^$build/test/\(.*\)|\1 &|"
    ls test/cli/test_*.sh 2>/dev/null | sed 's|^test/\(.*\)|\1 &|'
    ls python/test/test_*.py 2>/dev/null | sed 's|^python/test/\(.*\)\.py|python/\1 &|'
}
lines() { sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$1"; }
# Of such lines those with $pattern that PS_TEST_ONLY and PS_TEST_LEAVE let through; those of test/longest.txt first, in its
# order, so that none of them runs alone at the end.
chosen() {
    awk -v only="${PS_TEST_ONLY:-}" -v leave="${PS_TEST_LEAVE:-}" -v pattern="$pattern" '
        function read(file, list,   n, line) {
            while (file != "" && (getline line <file) > 0) {
                sub(/#.*/, "", line); sub(/[ \t]*$/, "", line)
                gsub(/\./, "[.]", line); gsub(/%/, ".*", line)
                if (line != "") list[++n] = "^" line "$"
            }
            return n + 0
        }
        function place(name, list, n,   i) {
            for (i = 1; i <= n; i++) if (name ~ list[i]) return i
            return 0
        }
        BEGIN { n_only = read(only, only_list); n_leave = read(leave, leave_list); n_longest = read("test/longest.txt", longest) }
        index($1, pattern) == 0 || (only != "" && !place($1, only_list, n_only)) || place($1, leave_list, n_leave) { next }
        { i = place($1, longest, n_longest); print (i ? i : n_longest + 1), $0 }' | sort -s -n -k 1,1 | cut -d ' ' -f 2-
}

# Which of these kinds this machine can be. An instruction set that it lacks is no error, another name is. Kernels of
# two kinds are the same where instruction set and products of bf16 are.
kernels() { "$build/pstar" info 2>&1 | grep '^instruction set\|^number formats\|PS_TEST_CPU'; }
can_be= own=
for kind in ${PS_TEST_CPUS:-}; do
    found=$(export PS_TEST_CPU="$kind"; kernels)
    case $found in
    *"supports at most"*) ;;
    *PS_TEST_CPU*) echo "$found" >&2; exit 2 ;;
    "$(unset PS_TEST_CPU; kernels)") own=$kind; echo "      $kind is this machine's own" ;;
    *) can_be="$can_be $kind" ;;
    esac
done

if [ -n "${PS_TEST_LEAVE:-}" ]; then
    lines "$PS_TEST_LEAVE" | while read -r line; do
        case $line in *"$pattern"*) ;; *) continue ;; esac
        echo "skip  $line ($PS_TEST_LEAVE)"
        echo "0 0 1" >"$results/left_$(echo "$line" | tr / _).counts"
    done
fi
all_tests | chosen | while read -r name path; do
    [ -n "${PS_TEST_CPUS:-}" ] || echo "$path"
    for kind in ${PS_TEST_CPUS:-}; do
        case " $can_be " in *" $kind "*) echo "$path@$kind"; continue ;; esac
        [ "$kind" != "$own" ] || continue
        echo "skip  $path as on $kind (this machine cannot execute that)" >&2
        echo "0 0 1" >"$results/absent_$(echo "$path@$kind" | tr / _).counts"
    done
done | xargs -r -n 1 -P "$jobs" sh test/run.sh --one "$build"

# What takes most of the processors' time.
cat "$results"/*.cost 2>/dev/null | sort -rn | awk '
    NR <= 10 { line[NR] = sprintf("      %5d %5d %s", $1, $2, substr($0, length($1) + length($2) + 3)) }
    { cpu += $1 }
    END { printf "      %d seconds of processors in %d tests; the most expensive, and seconds of a clock:\n", cpu, NR
          for (i = 1; i <= NR && i <= 10; i++) print line[i] }'
# A processor that can execute none of PS_TEST_CPUS skips all, and nothing failed; elsewhere such a run tried nothing.
cat "$results"/*.counts 2>/dev/null | awk -v may_skip_all="${PS_TEST_CPUS:+1}" '
    { p += $1; f += $2; s += $3 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit !(f == 0 && (p > 0 || (may_skip_all && s > 0))) }'
