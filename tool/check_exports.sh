#!/bin/sh
# Check that the shared libraries export exactly what is declared, with a version of src/exports.map: the PS_API functions
# of patrickstar_data.h are libpatrickstar_data's, those of the other headers of include/ libpatrickstar's, all of them
# PATRICKSTAR_<number>; what is PS_PRIVATE_API in src/ is libpatrickstar's, as PATRICKSTAR_PRIVATE. And that each public
# function is defined in a folder that its section of the header names: "---- checkpoints (src/api, src/weights) ----".
#
# usage: tool/check_exports.sh [FOLDER]        of the libraries (default: build)
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT

# exported LIBRARY: a line "name version" for each symbol
exported() {
    nm -D --defined-only "$1" | awk '$2 != "A" { n = split($NF, part, /@@?PATRICKSTAR_/); print part[1], (n > 1 ? part[2] : "none") }' | sort -u
}

# declared MARK FILE...: a line "name FILE:line FOLDERS" of each declaration that begins with MARK, with the folders that its
# section names; comments and preprocessor lines are taken out first
declared() {
    mark=$1
    shift
    awk -v mark="$mark" '
        FNR == 1 { section = "" }
        /^\/\* ---- / { section = match($0, /\(src[^)]*\)/) ? substr($0, RSTART + 1, RLENGTH - 2) : ""; gsub(/ /, "", section) }
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
                if (!match(declaration, "(^|[^A-Za-z0-9_])" mark "[^A-Za-z0-9_]")) continue
                declaration = substr(declaration, RSTART + length(mark))
                gsub(/__attribute__\(\([^;]*\)\)\)/, "", declaration)
                paren = index(declaration, "(")
                name = paren ? substr(declaration, 1, paren - 1) : declaration
                sub(/[ \t]+$/, "", name); sub(/.*[^A-Za-z0-9_]/, "", name)
                print name, FILENAME ":" FNR, section
            }
        }
    ' "$@" | sort -u
}

# compare LIBRARY VERSIONS DECLARED: what it exports as one of these (a pattern) is what is declared, each a function ps_<something>
compare() {
    exported "$1" >"$folder/exported"
    awk -v library="$1" -v versions="^($2)\$" '
        FILENAME ~ /exported$/ { if ($2 ~ versions) exported[$1] = 1; next }
        {
            declared[$1] = 1
            if ($1 !~ /^ps_[a-z]/) { printf "%s: %s: public names begin with ps_, and only functions are public\n", $2, $1; bad = 1 }
            if (!($1 in exported)) { printf "%s: %s is declared, but %s lacks it\n", $2, $1, library; bad = 1 }
        }
        END {
            for (name in exported)
                if (!(name in declared)) { printf "%s:1: exports %s, which is not declared so\n", library, name; bad = 1 }
            exit bad
        }
    ' "$folder/exported" "$3"
}

bad=0
for library in libpatrickstar libpatrickstar_data; do
    if [ ! -f "$build/$library.so" ]; then
        echo "$build/$library.so:1: does not exist; run make first"
        exit 1
    fi
done
# shellcheck disable=SC2046 # file names have no spaces
declared PS_API $(ls include/*.h | grep -v patrickstar_data.h) >"$folder/core"
declared PS_API include/patrickstar_data.h >"$folder/data"
# shellcheck disable=SC2046
declared PS_PRIVATE_API $(grep -rl PS_PRIVATE_API src --include='*.h') >"$folder/private"
# The texts of enumerations are declared by a macro.
sed -n 's/^ *XX(\(ps_config_[a-z_]*\), PS_CONFIG_.*_MAP).*/\1_names src\/option\/options.h:1/p' src/config/option/options.h >>"$folder/private"
sed -i '/^type##\|^_names /d' "$folder/private"
for list in core data private; do
    [ -s "$folder/$list" ] || { echo "include: no declaration found ($list)"; exit 1; }
done
compare "$build/libpatrickstar.so" '[0-9.]*|none' "$folder/core" || bad=1
compare "$build/libpatrickstar.so" PRIVATE "$folder/private" || bad=1
compare "$build/libpatrickstar_data.so" '[0-9.]*|none|PRIVATE' "$folder/data" || bad=1

# A line "function folder" for each function; there are objects only where this build was compiled.
# shellcheck disable=SC2046
nm -A --defined-only $(find src -name '*.c' | sed "s,.*,$build/&,; s,c\$,o," | xargs ls 2>/dev/null) | awk -v build="$build/" '
    $2 == "T" || $3 == "T" { split($1, part, ":"); path = substr(part[1], length(build) + 1); sub(/\/[^\/]*$/, "", path); print $NF, path }' >"$folder/defined"
awk '
    FILENAME ~ /defined$/ { at[$1] = $2; next }
    {
        n = split($3, named, ",")
        for (i = 1; i <= n; i++)
            if (index(at[$1] "/", named[i] "/") == 1) next
        printf "%s: %s is defined in %s, but its section says \"%s\"\n", $2, $1, at[$1], $3
        bad = 1
    }
    END { exit bad }
' "$folder/defined" "$folder/core" "$folder/data" || bad=1
exit $bad
