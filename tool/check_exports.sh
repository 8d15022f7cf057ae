#!/bin/sh
# Check that the shared library exports exactly the PS_API functions that include/patrickstar.h declares, all of them
# named ps_<something>.
#
# usage: tool/check_exports.sh [LIBRARY]        (default: build/libpatrickstar.so)
set -u
cd "$(dirname "$0")/.." || exit 2
library=${1:-build/libpatrickstar.so}
header=include/patrickstar.h
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT

if [ ! -f "$library" ]; then
    echo "$library:1: does not exist; run make first"
    exit 1
fi
nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u >"$folder/exported" || exit 2

# "name line" of each declaration that begins with PS_API; comments and preprocessor lines are taken out first.
awk '
    !in_comment && (/^[ \t]*#/ || is_continued) { is_continued = /\\$/; next }
    {
        text = $0
        while (1) {
            if (in_comment) {
                if (!(end = index(text, "*/"))) { text = ""; break }
                text = substr(text, end + 2); in_comment = 0
            }
            if (!(begin = index(text, "/*"))) break
            code = code substr(text, 1, begin - 1); text = substr(text, begin + 2); in_comment = 1
        }
        code = code " " text
        while (end = index(code, ";")) {
            declaration = substr(code, 1, end - 1); code = substr(code, end + 1)
            if (!match(declaration, /(^|[^A-Za-z0-9_])PS_API[^A-Za-z0-9_]/)) continue
            declaration = substr(declaration, RSTART); paren = index(declaration, "(")
            name = paren ? substr(declaration, 1, paren - 1) : declaration
            sub(/[ \t]+$/, "", name); sub(/.*[^A-Za-z0-9_]/, "", name)
            print name, FNR, paren ? "function" : "data"
        }
    }
' $header | sort >"$folder/declared"

if [ ! -s "$folder/declared" ]; then
    echo "$header:1: no PS_API declaration found"
    exit 1
fi
awk -v header=$header -v library="$library" '
    FILENAME ~ /exported$/ { exported[$1] = 1; next }
    {
        declared[$1] = 1
        if ($3 != "function") { printf "%s:%d: %s: only functions are public\n", header, $2, $1; bad = 1 }
        if ($1 !~ /^ps_[a-z]/) { printf "%s:%d: %s: public names begin with ps_\n", header, $2, $1; bad = 1 }
        if (!($1 in exported)) { printf "%s:%d: %s is declared, but %s lacks it\n", header, $2, $1, library; bad = 1 }
    }
    END {
        for (name in exported)
            if (!(name in declared)) print name >(folder "/extra")
        exit bad
    }
' folder="$folder" "$folder/exported" "$folder/declared"
bad=$?

[ -f "$folder/extra" ] || exit $bad
sort "$folder/extra" | while read -r name; do
    where=$(grep -rnE "(^|[^A-Za-z0-9_])$name( *\(|[^A-Za-z0-9_])" src | head -n 1 | cut -d: -f1,2)
    echo "${where:-$library:1}: $name is exported, but $header does not declare it"
done
exit 1
