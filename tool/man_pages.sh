#!/bin/sh
# Write the manual pages of pstar and of its commands, from what they say on --help.
#
# usage: tool/man_pages.sh PSTAR FOLDER
set -eu
pstar=$1 folder=$2
command -v help2man >/dev/null || { echo "tool/man_pages.sh: help2man is missing (Debian: help2man)" >&2; exit 1; }
version=$("$pstar" --version | sed 's/^pstar //')
extra=$(mktemp)
trap 'rm -f "$extra"' EXIT
mkdir -p "$folder"

# page NAME WHAT COMMAND...: what --help of COMMAND says, as the page NAME
page() {
    name=$1 what=$2
    shift 2
    upper=$(echo "$name" | tr a-z A-Z)
    help2man --no-info --include="$extra" --version-string="$version" --source="PatrickStar-in-C $version" --name="$what" "$*" |
        sed "s/^\.TH [^ ]* /.TH $upper /; s/^\.TH \"[^\"]*\" /.TH $upper /" >"$folder/$name.1"
}

"$pstar" --help | sed -n 's/^  \([a-z]*\)  *\([^ ].*\)/\1 \2/p' | while read -r command what; do
    printf '[see also]\n.BR pstar (1)\n' >"$extra"
    page "pstar-$command" "$what" "$pstar" "$command"
done
{
    echo '[files]'
    echo 'What a configuration holds: config.md, with the other pages in the documentation folder of patrickstar;'
    echo '.B pstar train --help-config'
    echo 'lists all its keys.'
    echo '[see also]'
    for file in "$folder"/pstar-*.1; do
        name=${file##*/}
        echo ".BR ${name%.1} (1)"
    done
} >"$extra"
page pstar 'train transformers whose model data does not fit in memory' "$pstar"
