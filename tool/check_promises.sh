#!/bin/sh
# Check that each test that the table of promises in doc/design.md names is there.
#
# usage: tool/check_promises.sh
set -u
cd "$(dirname "$0")/.." || exit 2
named=$(sed -n '/^## Promises/,/^## Layout/p' doc/design.md | grep -o '`\(test\|python\|tool\)/[^`]*`' | tr -d '`' | sort -u)
[ -n "$named" ] || { echo "doc/design.md: no table of promises"; exit 1; }
missing=0
for path in $named; do
    [ -e "$path" ] || { echo "doc/design.md: the table of promises names $path, which is not there"; missing=1; }
done
exit $missing
