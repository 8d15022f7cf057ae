#!/bin/sh
# pstar measures the machine once, in a process of its own, keeps what it found, and plans with it.
set -u
pstar=$1/pstar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PSTAR_HARDWARE
ask=
export XDG_CACHE_HOME="$work/a/cache"
fail() { echo "$*"; cat "$work/out" "$work/err"; exit 1; }
plan() { "$pstar" plan "$work/tiny.json" --no-advice ${ask:+"$ask"} "$@" >"$work/out" 2>"$work/err" || fail "plan $*"; }
kept() { ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json 2>/dev/null | wc -l; }
cat >"$work/tiny.json" <<END
{"model": {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2},
 "memory": {"device": "8MB", "host": 0}, "train_micro_batch_size_per_gpu": 2,
 "data": {"train": "$work/tokens.u16"}, "train": {"steps": 3, "output_dir": "$work/run/deep"}}
END
LC_ALL=C awk 'BEGIN { for (i = 0; i < 5000; i++) printf "%c%c", i * i % 61 + 1, 0 }' >"$work/tokens.u16"

planned_with="\\(; other programs were running, .*\\)\\?: "

"$pstar" info >"$work/out" 2>"$work/err"
grep -q "^measured speed  *not yet" "$work/out" || fail "known before it was measured"
plan
grep -q "^measured this machine once (.* s), for the times of plans$planned_with$XDG_CACHE_HOME/patrickstar/machine-" "$work/err" || fail "not measured"
grep -q "^machine   this one (.*, as measured)" "$work/out" || fail "not planned with"
[ "$(kept)" = 1 ] || fail "not kept"
case $(ls "$XDG_CACHE_HOME/patrickstar") in
*"machine-"*"-cores-$(uname -r | tr A-Z a-z | tr -c 'a-z0-9._\n' -)"*"-threads-f32.json"*) ;;
*) fail "the file's name does not say what it is of: $(ls "$XDG_CACHE_HOME/patrickstar")" ;;
esac
first=$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*.json)
plan
[ -s "$work/err" ] && fail "measured twice"
[ "$first" = "$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*.json)" ] || fail "the description has changed"
plan --hardware "$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json)" # it is a description as any other
case $first in *'"disk"'*) fail "a disk was measured without a disk tier" ;; esac

# without budgets of tiers the disk is that of the output folder or of /var/tmp, not TMPDIR, which may be RAM itself
XDG_CACHE_HOME="$work/auto/cache" TMPDIR=/dev/shm plan memory.device=auto memory.host=auto
grep -q '"disk"' "$work"/auto/cache/patrickstar/machine-*.json || fail "no disk was measured for memory.disk = auto"
grep -q /dev/shm "$work"/auto/cache/patrickstar/machine-*.json && fail "the disk was measured in RAM"

# another number format, other threads, and the disk, are measured apart; the disk where a run will make its folder
plan memory.disk=20MB
[ "$(kept)" = 2 ] || fail "the disk is not kept by itself"
[ "$first" = "$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*-f32.json)" ] || fail "a disk changes how fast the machine computes"
grep -q '"read_both_ways_bytes_per_s"' "$XDG_CACHE_HOME"/patrickstar/machine-*-disk-*.*.json || fail "no rates of reading and writing at once"
plan bf16.enabled=true train.threads=1 memory.disk=20MB
[ "$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*-1-threads-bf16.json | wc -l)" = 1 ] || fail "bf16 takes the rates of f32"
[ "$(kept)" = 3 ] || fail "the disk is measured for each number format"
[ -e "$work/run" ] && fail "planning has made the folder of the run"
plan memory.disk=20MB memory.disk_path="/dev/shm, /dev/shm"
[ "$first" = "$(cat "$XDG_CACHE_HOME"/patrickstar/machine-*-f32.json)" ] || fail "a list of disks changes how fast the machine computes"
rm "$XDG_CACHE_HOME"/patrickstar/machine-*-2-disks-*.json

# a folder that cannot be used leaves the rest measured
(
    export XDG_CACHE_HOME="$work/e"
    plan memory.disk=20MB memory.disk_path=/proc
    grep -q "^memory.disk_path could not be measured, the plan assumes a typical disk: " "$work/err" || fail "a bad folder, unsaid"
    grep -q "^measured this machine once " "$work/err" && [ "$(kept)" = 1 ] || fail "a bad folder leaves nothing measured"
) || exit 1

# others that compute meanwhile are noticed, or it is so busy that measuring is given up
(
    export XDG_CACHE_HOME="$work/f"
    for i in $(seq "$(nproc)"); do while :; do :; done & spinning="${spinning-} $!"; done
    plan
    kill $spinning
    grep -q "other programs were running, so they may be off (pstar info --forget measures again): \|took more than 10 s" "$work/err" || fail "others that compute are not noticed"
) || exit 1

# pstar info shows what is kept, with the date, and forgets it when asked
"$pstar" info >"$work/out" 2>"$work/err"
[ "$(grep -c "^measured speed  *$XDG_CACHE_HOME/.*: Measured $(date -u +%Y)-" "$work/out")" = 3 ] || fail "info does not show what is kept"
[ "$(grep -c "^ *disk reads .* writes .* at once" "$work/out")" = 1 ] || fail "info does not show the rates of the disk"
[ "$(grep -c "training reaches .* GFLOP/s in .*, RAM " "$work/out")" = 2 ] || fail "info does not show the rates of computing"

# what cannot be read is said, and measured again
for f in "$XDG_CACHE_HOME"/patrickstar/machine-*.json; do echo '{"name": ' >"$f"; done
"$pstar" info >"$work/out" 2>"$work/err"
grep -q "cannot be used, and will be measured again: .*machine-.*json:2:" "$work/out" || fail "info does not say what is broken"
plan
grep -q "^this machine is measured again: .*machine-.*json:2:" "$work/err" || fail "not said"
grep -q "^measured" "$work/err" || fail "a broken description was taken"
plan
[ -s "$work/err" ] && fail "a broken description was kept"
cp examples/hardware/h200-128gb.json "$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*-f32.json)"
plan
grep -q "describes another use of the machine" "$work/err" || fail "a GPU was taken for this machine"
if [ "$(id -u)" = 0 ]; then
    chown 12345 "$XDG_CACHE_HOME"/patrickstar/machine-*.json
    plan
    grep -q "belongs to another user" "$work/err" || fail "another user's description was taken"
fi
"$pstar" info --forget >"$work/out" 2>"$work/err"
[ "$(kept)" = 0 ] || fail "not forgotten"

# of starts at the same time one measures
for i in 1 2 3; do "$pstar" plan "$work/tiny.json" --no-advice >"$work/out.$i" 2>"$work/err.$i" & done
wait
[ "$(cat "$work"/err.? | grep -c "^measured this machine")" = 1 ] || fail "several have measured: $(cat "$work"/err.?)"
[ "$(cat "$work"/out.? | grep -c "^machine   this one (.*, as measured)")" = 3 ] || fail "some do not know the machine"

# the trainer never has the memory that measuring takes, and the bits are those of any other rates
described=$(ls "$XDG_CACHE_HOME"/patrickstar/machine-*.json | head -n 1)
train() { "$pstar" train --overwrite "$work/tiny.json" "$@" >"$work/out" 2>"$work/err" || fail "train $*"; sed -n 's/.*"weights_xxh3": //p' "$work/run/deep/summary.json"; }
resident() { sed -n 's/.*"rss_peak_bytes": \([0-9]*\).*/\1/p' "$work/run/deep/summary.json" | tail -n 1; }
rm "$described"
measured=$(train)
grep -q "^measured this machine" "$work/err" || fail "training does not measure"
grep -q '"hardware": "auto"' "$work/run/deep/summary.json" || fail "a run does not say what it was planned with"
case $1 in
*address* | *thread*) ;; # a sanitizer has memory of its own
*) [ "$(resident)" -lt 200000000 ] || fail "training keeps the memory of measuring: $(resident)" ;;
esac
[ "$measured" = "$(train hardware=none)" ] || fail "other bits by hardware = none"
sed 's/"memory_bytes_per_s": .*,/"memory_bytes_per_s": 1e6,/; s/"to_device_bytes_per_s": .*,/"to_device_bytes_per_s": 1e5,/; /both_ways/d' "$described" >"$work/slow.json"
[ "$measured" = "$(train hardware="$work/slow.json")" ] || fail "other bits by a slow machine"
grep -q "more than it took: this machine was measured while it was slower; measure it again (pstar info --forget)" "$work/out" || fail "a step faster than its bound, unsaid"

# where nothing can be kept it is for this run only
XDG_CACHE_HOME=/proc/nowhere plan
grep -q "cannot be saved for later runs" "$work/err" || fail "kept in /proc"
if ! why=$(mkdir /sys/nowhere 2>&1); then
    XDG_CACHE_HOME=/sys/nowhere/cache plan
    grep -q "cannot be saved for later runs: /sys/nowhere: cannot make the folder: ${why##*: }$" "$work/err" || fail "why nothing is kept, $why"
fi
(unset XDG_CACHE_HOME HOME; plan; grep -q "neither XDG_CACHE_HOME nor HOME" "$work/err" || fail "kept without a home") || exit 1

# a machine that cannot be measured is planned for all the same
case $1 in
*address* | *thread*) ;;
*) (
    export XDG_CACHE_HOME="$work/c"
    ulimit -v 200000
    plan
    grep -q "^this machine could not be measured, .*: pstar info: " "$work/err" || fail "unmeasured, unsaid"
) || exit 1 ;;
esac

# nor waits one for a measurement that stands still
(
    export XDG_CACHE_HOME="$work/d"
    "$pstar" plan "$work/tiny.json" --no-advice >"$work/out" 2>"$work/err" &
    until measures=$(cat /proc/$!/task/$!/children) && grep -qs -- --quick "/proc/${measures% }/cmdline"; do
        kill -0 $! 2>/dev/null || fail "measured before it could be stopped"
    done
    kill -STOP "${measures% }"
    wait $! || fail "a stopped measurement stops the plan"
    grep -q "^this machine could not be measured, .* more than 10 s, and was ended" "$work/err" || fail "a stopped measurement, unsaid"
) || exit 1

# hardware=none measures nothing; PSTAR_HARDWARE holds where the option is not given
export XDG_CACHE_HOME="$work/b"
plan hardware=none
grep -q "speeds of a typical PC" "$work/out" || fail "measured unasked"
plan --hardware none
PSTAR_HARDWARE=none plan
[ -d "$work/b" ] && fail "measured in spite of none"
PSTAR_HARDWARE=$described plan
grep -q "speeds of a typical PC" "$work/out" && fail "PSTAR_HARDWARE names a description"
PSTAR_HARDWARE=$described "$pstar" config "$work/tiny.json" | grep -q "\"hardware\": \"$described\"" || fail "pstar config does not say what a run would take"
"$pstar" config "$work/tiny.json" | grep -q '"hardware": "auto"' || fail "pstar config says another default than a run has"
PSTAR_HARDWARE=$described plan hardware=none # the configuration comes first
grep -q "speeds of a typical PC" "$work/out" || fail "the configuration does not come first"
[ -d "$work/b" ] && fail "measured in spite of a description"
if PSTAR_HARDWARE=$work/absent.json "$pstar" plan "$work/tiny.json" >"$work/out" 2>"$work/err"; then fail "a missing description"; fi
grep -q "PSTAR_HARDWARE (a file, auto or none).*absent.json" "$work/err" || fail "the missing description is not named"
export XDG_CACHE_HOME="$work/a/cache" # where it is kept
for option in --hardware=auto hardware=auto ""; do
    PSTAR_HARDWARE=auto plan $option
    [ ! -s "$work/err" ] && ! grep -q "speeds of a typical PC" "$work/out" || fail "auto is not what is kept"
done
exit 0
