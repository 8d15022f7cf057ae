#!/bin/sh
# Manual pages and completion say what --help says: a page a command with all its options; commands, options and keys
# complete.
#
# usage: test/cli/test_man.sh BUILD_FOLDER
set -eu
pstar=$PWD/$1/pstar
. test/cli/skip_lib.sh
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# ---- completion ----
command -v bash >/dev/null || skip 'bash'
cat >"$tmp/complete.bash" <<'END'
source tool/completion/pstar.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_pstar
printf '%s\n' "${COMPREPLY[@]}"
END
# completes WANT WORD...: is WANT among what completes the last word?
completes() {
    want=$1
    shift
    bash "$tmp/complete.bash" "$pstar" "$@" | grep -qx -e "$want" || { echo "'$*' does not complete to $want"; exit 1; }
}
completes train tr
completes report ''
completes --resume train --re
completes --max-model plan --max
completes --truncate-prompt generate --tr
completes optimizer.type= train examples/demo.json optimizer.t
completes examples train exam
[ "$(bash "$tmp/complete.bash" "$pstar" train --nothing)" = '' ] || { echo 'what is no option completes'; exit 1; }

# ---- pages ----
command -v help2man >/dev/null || skip 'help2man, for the manual pages'
sh tool/man_pages.sh "$pstar" "$tmp/man"
commands=$("$pstar" --help | sed -n 's/^  \([a-z]*\)  *[^ ].*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 11 ] || { echo "commands: $commands"; exit 1; }
for command in $commands; do
    page=$tmp/man/pstar-$command.1
    [ -s "$page" ] || { echo "pstar $command has no page"; exit 1; }
    grep -q "pstar-$command" "$tmp/man/pstar.1" || { echo "pstar.1 does not name pstar-$command"; exit 1; }
    sed 's/\\-/-/g; s/\\fB//g; s/\\fR//g; s/\\fI//g' "$page" >"$tmp/plain"
    "$pstar" "$command" --help | sed -n 's/^ *\(-.,\)\{0,1\} *\(--[a-z-]*\).*/\2/p' >"$tmp/options"
    [ -s "$tmp/options" ] || { echo "pstar $command has no options?"; exit 1; }
    while read -r option; do
        grep -q -e "$option" "$tmp/plain" || { echo "the page of pstar $command lacks $option"; exit 1; }
    done <"$tmp/options"
done
