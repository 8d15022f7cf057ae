#!/bin/sh
# Check that clang-format would change nothing, and that lines of public headers end at column 120, comments too, which it
# leaves alone; with -i, let it. Assumes that file names have no spaces.
#
# usage: [CLANG_FORMAT=clang-format-14] tool/check_format.sh [-i]
set -u
bad=0
cd "$(dirname "$0")/.." || exit 2
if [ "${1:-}" = -i ]; then mode=-i; else mode='--dry-run -Werror'; fi
# shellcheck disable=SC2086 # the mode is several words
find src cli test include bench examples \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort |
    xargs -r "${CLANG_FORMAT:-clang-format}" $mode --style=file || bad=1
awk 'length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; bad = 1 } END { exit bad }' include/* || bad=1
exit "$bad"
