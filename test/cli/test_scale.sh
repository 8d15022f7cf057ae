#!/bin/sh
# doc/scale.md is what tool/scale.py would write now. usage: test/cli/test_scale.sh BUILD_FOLDER
set -u
build=$1
. test/cli/cli_lib.sh
case ${build##*/} in *-d[1-9]* | *address* | *undefined* | *thread*) skip "planning takes minutes with debug checks or sanitizers" ;; esac
expect 0 python3 tool/scale.py "$build" --check
# A number, a word or the hash that is another is found.
for change in 's/^\(| 8 x V100 | GPT2_1B | \)[0-9]*/\1123/' 's/^Reading the ratios/Reading the tables/' 's/made of: ./made of: x/'; do
    sed "$change" doc/scale.md >"$work/page.md"
    cmp -s doc/scale.md "$work/page.md" && fail "nothing to change: $change"
    expect 1 python3 tool/scale.py "$build" --check "$work/page.md"
    says err "is stale"
done
exit 0
