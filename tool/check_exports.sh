#!/bin/sh
# Check that the shared library exports exactly the PS_API functions that the headers of include/ declare, all of them
# named ps_<something> and with a version (src/exports.map).
#
# usage: tool/check_exports.sh [LIBRARY]        (default: build/libpatrickstar.so)
set -u
cd "$(dirname "$0")/.." || exit 2
library=${1:-build/libpatrickstar.so}
headers=$(ls include/*.h)
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT

if [ ! -f "$library" ]; then
    echo "$library:1: does not exist; run make first"
    exit 1
fi
nm -D --defined-only "$library" | awk '$2 != "A" { if (!sub(/@@?PATRICKSTAR_.*/, "", $NF)) $NF = $NF "-without-a-version"; print $NF }' |
    sort -u >"$folder/exported" || exit 2

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
        if (FNR == 1) code = ""
        code = code " " text
        while (end = index(code, ";")) {
            declaration = substr(code, 1, end - 1); code = substr(code, end + 1)
            if (!match(declaration, /(^|[^A-Za-z0-9_])PS_API[^A-Za-z0-9_]/)) continue
            declaration = substr(declaration, RSTART); paren = index(declaration, "(")
            name = paren ? substr(declaration, 1, paren - 1) : declaration
            sub(/[ \t]+$/, "", name); sub(/.*[^A-Za-z0-9_]/, "", name)
            print name, FILENAME ":" FNR, paren ? "function" : "data"
        }
    }
' $headers | sort >"$folder/declared"

if [ ! -s "$folder/declared" ]; then
    echo "include: no PS_API declaration found"
    exit 1
fi
awk -v library="$library" '
    FILENAME ~ /exported$/ { exported[$1] = 1; next }
    {
        declared[$1] = 1
        if ($3 != "function") { printf "%s: %s: only functions are public\n", $2, $1; bad = 1 }
        if ($1 !~ /^ps_[a-z]/) { printf "%s: %s: public names begin with ps_\n", $2, $1; bad = 1 }
        if (!($1 in exported)) { printf "%s: %s is declared, but %s lacks it\n", $2, $1, library; bad = 1 }
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
    echo "${where:-$library:1}: $name is exported, but no header of include/ declares it"
done
exit 1
