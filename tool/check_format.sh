#!/bin/sh
# Check that clang-format would change nothing. To mend: clang-format -i FILE.
#
# usage: [CLANG_FORMAT=clang-format-14] tool/check_format.sh
set -u
cd "$(dirname "$0")/.." || exit 2
find src cli test include bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort |
    xargs -r "${CLANG_FORMAT:-clang-format}" --dry-run -Werror --style=file
