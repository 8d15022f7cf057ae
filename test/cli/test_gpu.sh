#!/bin/sh
# The program where there is a GPU: of a driver that is not there, with kernels on the emulator. It is found, used and named;
# where it cannot be used that is said, and what computes instead.
set -u
build=$1
. test/cli/cli_lib.sh
pstar=$root/$build/test/gpu/pstar
small="model.n_layer=1 model.n_embd=16 train_micro_batch_size_per_gpu=1 model.n_positions=8 train.steps=2"

expect 0 "$pstar" info
says out "Fake 0 (compute capability 9.0)"
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB
says out "GPU 0 of 1: Fake 0, "
[ "$(summary "$work/run" backend)" = cuda ] || fail "the summary names another backend"
[ "$(summary "$work/run" gpu)" = "Fake 0" ] || fail "the summary does not name the GPU"
for tier in device host; do
    sed -n "s/^$tier  *\([0-9.]* .B\)  *\([0-9.]* .B\) .*/\1 \2/p" "$work/out" | while read -r a ua b ub; do
        [ "$a $ua" = "$b $ub" ] || fail "peak of the $tier: $a $ua, planned $b $ub"
    done || exit 1
done
gpu=$(summary "$work/run" weights_xxh3)
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB train.backend=cpu
grep -q "^GPU" "$work/out" && fail "a GPU is named, and the processor computes"
[ "$(summary "$work/run" weights_xxh3)" != "$gpu" ] || fail "the processor's bits: it was not the GPU that computed"

# what algorithms take is timed once, kept, and taken again; also by who goes on from a checkpoint when it is gone
export PS_FAKE_ALGORITHMS=2 XDG_CACHE_HOME="$work/cache"
in_f32="$small bf16.enabled=false memory.host=40MB" # whose bits tell sums apart
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $in_f32 train.product_algorithms=first "train.output_dir=$work/first"
first=$(summary "$work/first" weights_xxh3)
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $in_f32 train.save_interval=1 train.keep_last=2
grep -q "^timed the algorithms of [0-9]* matrix products in " "$work/out" || fail "nothing was timed"
timed=$(summary "$work/run" weights_xxh3)
[ "$timed" != "$first" ] || fail "what was timed was not taken"
table=$(ls "$work"/cache/patrickstar/products-fake-0-*.json) || fail "nothing is kept"
grep -q '"place": 1' "$table" || fail "not the fastest"
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $in_f32 "train.output_dir=$work/again"
grep -q "^timed" "$work/out" && fail "timed a second time"
[ "$(summary "$work/again" weights_xxh3)" = "$timed" ] || fail "other bits with the table that was kept"
expect 0 "$pstar" info
says out "known products      $table: algorithms of "
cp "$table" "${table%.json}.kept"
cp "$table" "$work/cache/patrickstar/products-fake-00-16-driver-13000.json" # another GPU's
sed -i 's/patrickstar products/something/' "$table"
expect 0 "$pstar" info
says out "known products      $table: cannot be used, and will be timed again: "
expect 0 "$pstar" info --forget
says out "forgotten: $table"
[ ! -e "$table" ] || fail "not forgotten"
[ -e "$work/cache/patrickstar/products-fake-00-16-driver-13000.json" ] || fail "another GPU's is forgotten"
rm -r "$work/run/checkpoints/step-000002"
# shellcheck disable=SC2086
expect 0 "$pstar" train "$work/tiny.json" $in_f32 train.product_algorithms=first \
    "--resume=$work/run/checkpoints/step-000001" "train.output_dir=$work/other"
says err "pstar train: train.product_algorithms = first, but "
export PS_FAKE_ALGORITHMS=3
# shellcheck disable=SC2086
expect 0 "$pstar" train "$work/tiny.json" $in_f32 "--resume=$work/run/checkpoints/step-000001" \
    "train.output_dir=$work/resumed"
[ "$(summary "$work/resumed" weights_xxh3)" = "$timed" ] || fail "resumed with other algorithms"
[ ! -s "$work/err" ] || fail "a word: $(cat "$work/err")"
# where nothing can be kept, each start has the bits of the first algorithms; who asks for timed ones gets them, and a word
for algorithms in 2 3; do
    export PS_FAKE_ALGORITHMS=$algorithms XDG_CACHE_HOME=/proc
    # shellcheck disable=SC2086
    expect 0 "$pstar" train --overwrite "$work/tiny.json" $in_f32 "train.output_dir=$work/unkept"
    [ "$(summary "$work/unkept" weights_xxh3)" = "$first" ] || fail "bits of this start only"
    says err "cannot be kept: /proc/patrickstar: the folder cannot be written: "
    says err "(XDG_CACHE_HOME)"
    [ "$(grep -c "cannot be kept" "$work/err")" = 1 ] || fail "said more than once"
done
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $in_f32 train.product_algorithms=measured "train.output_dir=$work/unkept"
says out "timed the algorithms of "
says err "is for this run only: /proc/patrickstar: "
export XDG_CACHE_HOME="$work/cache"
unset PS_FAKE_ALGORITHMS

# it cannot be used: auto says so and goes on, cuda is an error
export PS_FAKE_GPUS=0
expect 0 "$pstar" info
says out "cannot be used, so the processor computes: NVIDIA's driver finds no GPU"
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=40MB
says err "pstar train: the processor computes, as the GPU cannot be used: NVIDIA's driver finds no GPU"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.backend=cuda
says err "train.backend = cuda: NVIDIA's driver finds no GPU"
says err "; or set train.backend = cpu"

# without hardware of NVIDIA's there is no word about it
pstar=$root/$build/pstar
"$pstar" info | grep -q "^GPU  *none of NVIDIA's" || exit 0
# shellcheck disable=SC2086
expect 0 "$pstar" train --overwrite "$work/tiny.json" $small memory.host=0
[ ! -s "$work/err" ] || fail "a word: $(cat "$work/err")"
expect 2 "$pstar" train --overwrite "$work/tiny.json" train.backend=cuda
says err "train.backend = cuda: "
