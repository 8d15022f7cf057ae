#!/bin/sh
# tool/gpu_check.sh itself, with programs that stand for ours: each operator is tried; where one fails it is run again, where launches
# wait, and by compute-sanitizer, the report shows what they say, and the rest is tried by another process.
#
# usage: test/cli/test_gpu_check.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
make -s -C "$root" -pn DEPS=0 CUDA= help 2>/dev/null | sed -n 's/^CUDA_TESTS := //p' | tr ' ' '\n' | sort -u >"$work/tests"
[ -s "$work/tests" ] || fail "no CUDA_TESTS in the Makefile"

# stub FILE: a program of this text
stub() {
    mkdir -p "$(dirname "$work/$1")"
    { echo '#!/bin/sh'; cat; } >"$work/$1"
    chmod +x "$work/$1"
}
stub build/pstar <<'END'
[ "$1" != info ] || echo 'GPU                 Stub can be used; driver'
END
for name in each_kernel gpu_device gpu_engine; do echo "echo '[  PASSED  ] 1 test(s).'" | stub "build/test/gpu/test_$name"; done
stub build/test/gpu/ops <<'END'
for name; do
    echo "== op $name"
    if [ "$name" = cast ]; then
        [ "${CUDA_LAUNCH_BLOCKING:-}" = 1 ] && echo '[  ERROR   ] --- cast: EDEVICE: cuda: ps_gpu_cast: CUDA_ERROR_ILLEGAL_ADDRESS'
        echo '[  ERROR   ] --- cast of 5 values: cuda: y[3] is 1, reference has 2'
        echo '[  FAILED  ] 1 test(s), listed below:'
        exit 1
    fi
    echo '[  PASSED  ] 2 test(s).'
done
END
stub bin/compute-sanitizer <<'END'
echo '========= Invalid __global__ read of size 4 bytes'
echo '=========     at ps_gpu_cast+0x50 in src/kernel/cuda/cuda_elementwise.cu:12'
exit 9
END
unset FAKE
expect 1 env PATH="$work/bin:$PATH" PYTHON=/bin/false sh tool/gpu_check.sh "$work/build" "$work/log"
says out "ok    machine"
grep -h '^FAILED: op' "$work/log" >"$work/failed"
[ "$(cat "$work/failed")" = 'FAILED: op cast' ] || fail "failed operators: $(cat "$work/failed")"
for words in 'cast of 5 values: cuda: y\[3\] is 1, reference has 2' 'again, where each launch waits: .*ps_gpu_cast: CUDA_ERROR_ILLEGAL_ADDRESS' \
    'sanitizer: =* Invalid __global__ read' 'sanitizer: .*cuda_elementwise.cu:12'; do
    grep -q "^ *.*$words" "$work/out" || fail "the report does not say: $words"
done
sed -n 's/^== op //p' "$work/log" | sort >"$work/tried"
cmp -s "$work/tried" "$work/tests" || fail "operators tried, and those of the Makefile: $(diff "$work/tried" "$work/tests")"

# Without time nothing is tried, and that is no success.
expect 1 env GPU_CHECK_S=0 PYTHON=/bin/false sh tool/gpu_check.sh "$work/build" "$work/log"
says out "the time is over"
says out "0 passed, 0 failed"
