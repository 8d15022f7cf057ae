#!/bin/sh
# A program of MINIMAL=1 needs no library but libc's, and says how it was built; tests find cmocka next to them.
# usage: test/cli/test_minimal.sh BUILD_FOLDER
set -u
build=$1
. test/cli/skip_lib.sh
case $build in *minimal*) ;; *) skip "a build of MINIMAL=1" ;; esac
fail() {
    echo "FAILED: $*"
    exit 1
}
ldd "$build/pstar" | grep -v 'linux-vdso\|/ld-linux\|libc\.so\|libm\.so\|libpthread\.so\|libdl\.so' && fail "pstar needs more than libc"
"$build/pstar" info | grep -q '^libraries .*; linked in$' || fail "pstar info does not say so"
for test in "$build"/test/*/test_*; do
    [ -x "$test" ] || continue
    ldd "$test" | grep -q "libcmocka.so.0 => .*$build" || fail "$test does not find cmocka beside it"
    break
done
exit 0
