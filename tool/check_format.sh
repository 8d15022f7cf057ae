#!/bin/sh
# Check that clang-format would change nothing; with -i, let it. Assumes that file names have no spaces.
#
# usage: [CLANG_FORMAT=clang-format-14] tool/check_format.sh [-i]
set -u
cd "$(dirname "$0")/.." || exit 2
if [ "${1:-}" = -i ]; then mode=-i; else mode='--dry-run -Werror'; fi
# shellcheck disable=SC2086 # the mode is several words
find src cli test include bench examples \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort |
    xargs -r "${CLANG_FORMAT:-clang-format}" $mode --style=file
