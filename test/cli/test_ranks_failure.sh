#!/bin/sh
# Ranks that differ are refused before a step; one that dies, stops or fails ends all, with its name; the checkpoint before is whole.
# usage: test/cli/test_ranks_failure.sh BUILD_FOLDER
set -u
. test/cli/ranks_lib.sh
host=$(hostname)

# Rank 1 runs what $work/one says, the others pstar.
cat >"$work/each" <<EOT
#!/bin/sh
[ "\$OMPI_COMM_WORLD_RANK" = 1 ] && . "$work/one"
exec "$pstar" "\$@"
EOT
chmod +x "$work/each"
# each N NAME [key=value...]: as train, over $work/each
each() {
    n=$1 name=$2
    shift 2
    timeout -k 5 60 mpirun.openmpi -np "$n" "$work/each" train "$work/shared.json" \
        gradient_accumulation_steps=$((12 / n)) train.output_dir="$work/$name" "$@" >"$work/out" 2>"$work/err"
    rc=$?
}
# Ended in time, with another status than 0, and the text in one line, or one a rank.
ended_with() {
    [ $rc -ne 0 ] && [ $rc -ne 124 ] || { cat "$work/out" "$work/err"; fail "status $rc, wanted: $1"; }
    lines=$(grep -c -- "$1" "$work/err")
    [ "$lines" -ge 1 ] && [ "$lines" -le "${2:-1}" ] || { cat "$work/err"; fail "$lines lines say: $1"; }
}
# Nothing has been trained.
refused() {
    ended_with "$1"
    grep -q '"step"' "$work/differ/metrics.jsonl" 2>/dev/null && fail "trained before: $1"
    rm -rf "$work/differ"
}

# ---- what differs ----

echo "exec '$pstar' \"\$@\" optimizer.params.lr=0.004" >"$work/one"
each 3 differ
refused "^pstar train: rank 1 ($host) has another configuration than rank 0"
cp "$pstar" "$work/other"
printf x >>"$work/other"
echo "export PATRICKSTAR_PLUGIN_PATH='$root/$build'; exec '$work/other' \"\$@\"" >"$work/one"
each 3 differ
refused "^pstar train: rank 1 ($host) has another program file than rank 0"
sed 's/a/b/g' "$work/bytes.u16" >"$work/others.u16"
echo "exec '$pstar' \"\$@\" data.train='$work/others.u16'" >"$work/one"
each 3 differ
refused "^pstar train: rank 1 ($host) has another hash of all data than rank 0"
# one token, in the middle
cp "$work/bytes.u16" "$work/others.u16"
printf '\001\000' | dd of="$work/others.u16" bs=2 seek=$(($(wc -c <"$work/bytes.u16") / 4)) conv=notrunc 2>"$work/dd"
cmp -s "$work/bytes.u16" "$work/others.u16" && fail "nothing was changed"
each 3 differ
refused "^pstar train: rank 1 ($host) has another hash of all data than rank 0"
echo "exec '$pstar' \"\$@\" data.train='$work/one.u16'" >"$work/one"
head -c 2000 "$work/bytes.u16" >"$work/one.u16"
each 3 differ
refused "^pstar train: rank 1 ($host) has another number of training samples than rank 0"
echo "exec '$pstar' \"\$@\" data.train='$work/nowhere.u16'" >"$work/one"
each 3 differ
refused "^pstar train: rank 1 ($host): .*nowhere.u16"
echo "exec '$pstar' \"\$@\" optimiser.lr=3" >"$work/one"
each 3 differ
refused "^pstar train: rank 1 ($host): .*optimiser"
# this one alone may use less: no rank may use more
echo "exec '$pstar' \"\$@\" memory.device=200KB" >"$work/one"
each 2 differ
refused "^pstar train: rank 1 ($host) has another configuration than rank 0"

# ---- what ends in the middle ----

# slow enough that there is a middle
long="train.steps=200 train.save_interval=5 train.keep_last=50"
: >"$work/one"
each 2 whole $long
[ $rc -eq 0 ] || { cat "$work/err"; fail "status $rc"; }

# Rank 1 gets the signal once three checkpoints are there.
cat >"$work/one" <<EOT
me=\$\$
( while [ ! -e "$work/\$(cat "$work/name")/checkpoints/step-000015" ]; do sleep 0.02; done
  kill -\$(cat "$work/signal") \$me ) >/dev/null 2>&1 &
EOT
# resumes_like_whole NAME: from the latest checkpoint
resumes_like_whole() {
    [ -s "$work/$1/checkpoints/latest" ] || fail "$1: no checkpoint"
    train 2 openmpi "$1" shared $long --resume
    [ $rc -eq 0 ] || { cat "$work/out" "$work/err"; fail "$1: resuming: status $rc"; }
    says out "resumed from"
    [ "$(weights "$1")" = "$(weights whole)" ] || fail "$1: other bits after resuming"
}
for signal in KILL STOP; do
    echo $signal >"$work/signal"
    echo "by-$signal" >"$work/name"
    begin=$(date +%s)
    each 2 "by-$signal" $long train.steps=100000
    [ $(($(date +%s) - begin)) -lt 45 ] || fail "$signal: not ended in time"
    case $signal in
    KILL) ended_with "process rank 1 with PID .* on node $host exited on signal 9\|rank 1 ($host) has not been heard of" 3 ;;
    STOP) ended_with "^pstar train: rank 1 ($host) has not been heard of for 3 s" ;;
    esac
    resumes_like_whole "by-$signal"
done

# A rank that is asked to stop stops all, in order: nothing is killed, and the status says that it was stopped.
echo TERM >"$work/signal"
echo by-TERM >"$work/name"
each 2 by-TERM $long train.steps=100000
[ $rc -eq 143 ] || { cat "$work/out" "$work/err"; fail "SIGTERM: status $rc"; }
says out "stopped after step"
grep -q "rank . (.*) has not\|left before the others" "$work/err" && { cat "$work/err"; fail "SIGTERM: not in order"; }
grep -q '"interrupted": true' "$work/by-TERM/summary.json" || fail "SIGTERM: no summary"
resumes_like_whole by-TERM
# The same of an evaluation, long enough for the signal to come in it.
for i in 1 2 3 4 5 6 7 8 9 10; do cat "$work/bytes.u16"; done >"$work/long.u16"
cp "$work/one" "$work/kept"
cat >"$work/one" <<EOT
me=\$\$
( until caught=\$(sed -n 's/^SigCgt:[^0-9a-f]*//p' /proc/\$me/status) && [ \$((0x\${caught:-0} >> 14 & 1)) -eq 1 ]; do
      sleep 0.02
  done
  kill -TERM \$me ) >/dev/null 2>&1 &
EOT
timeout -k 5 60 mpirun.openmpi -np 2 "$work/each" eval "$work/shared.json" data.train="$work/long.u16" --split train \
    --weights "$work/by-TERM" >"$work/out" 2>"$work/err"
rc=$?
[ $rc -eq 143 ] || { cat "$work/out" "$work/err"; fail "eval, SIGTERM: status $rc"; }
says err "pstar eval: stopped after "
grep -q "^loss" "$work/out" && fail "eval, SIGTERM: a result"
mv "$work/kept" "$work/one"
# A mistake in the configuration is no such end.
train 2 openmpi mistake shared optimiser.lr=3
[ $rc -eq 2 ] || { cat "$work/out" "$work/err"; fail "a mistake: status $rc"; }

export OMPI_MCA_btl=self,tcp # a limit on files would hit Open MPI's shared memory too
# The disk under rank 1 is full: its chunks cannot leave memory.
echo "ulimit -f 64; exec '$pstar' \"\$@\" memory.disk_path='$work/other-disk'" >"$work/one"
mkdir "$work/other-disk"
each 2 full default_chunk_size=4096 memory.device=560KB memory.disk=4MB
ended_with "rank 1 ($host).*other-disk" 2
# Only its part of a checkpoint finds no room: training continues, the end is not 0.
echo "ulimit -f 100" >"$work/one"
each 2 unsaved default_chunk_size=4096 train.steps=10 train.save_interval=5
ended_with "^pstar train: the checkpoint of step 5 failed: rank 1 ($host): "
[ "$(grep -c '"loss":' "$work/unsaved/metrics.jsonl")" -eq 10 ] || fail "a checkpoint that failed ended training"
[ ! -e "$work/unsaved/checkpoints/latest" ] || fail "latest names a checkpoint that is not there"
# Its data vanish.
cp "$work/bytes.u16" "$work/vanishing.u16"
cat >"$work/one" <<EOT
( while [ ! -e "$work/vanished/checkpoints/step-000015" ]; do sleep 0.02; done
  : >"$work/vanishing.u16" ) >/dev/null 2>&1 &
exec '$pstar' "\$@" data.train='$work/vanishing.u16'
EOT
each 2 vanished $long train.steps=100000
ended_with "rank 1 .*\(signal 7\|vanishing\)" 3
resumes_like_whole vanished

exit 0
