#!/bin/sh
# Check every #include under src/ and cli/ against tool/layers.txt: a file may include its own layer, the layers its row
# names, the public headers, and headers of its own folder or one below. What is in cli/train is the layer client. The
# table itself may only look down: a row names rows above it. A row "layer/level: files" names files of a layer (.c and
# .h), and the header level.h is among them: they may include headers of their own and lower levels of the layer, of
# which others see only the highest. Files in no level are below all. As prototypes come from headers, no file calls up.
# The drawing in doc/design.md must be that of the table: --draw writes it.
#
# usage: tool/check_layers.sh [--draw]
set -u
cd "$(dirname "$0")/.." || exit 2
page=doc/design.md begin='<!-- layers: by tool/check_layers.sh --draw -->' end='<!-- layers end -->'

# The table from its last row to its first, a line a layer.
draw() {
    echo '```'
    awk '
        /^\[/ { group = substr($0, 2, length($0) - 2); next }
        /^# / { what = substr($0, 3); next }
        /^[a-z]+:/ { n++; groups[n] = group; layers[n] = substr($1, 1, length($1) - 1); whats[n] = what }
        END {
            for (i = n; i > 0; i--) {
                if (groups[i] != groups[i + 1] && i < n) print " ------------------------------------------------------------------------------------------------"
                printf "  %-8s %-11s %s\n", groups[i] == groups[i + 1] ? "" : groups[i], layers[i], whats[i]
            }
        }' tool/layers.txt
    echo '```'
}
with_drawing() {
    awk -v begin="$begin" -v end="$end" 'FNR == NR { text = text $0 "\n"; next }
        $0 == begin { print; printf "%s", text; is_in = 1 }
        $0 == end { is_in = 0 }
        !is_in && $0 != begin { print }' - "$page"
}
drawn=$(mktemp) || exit 2
trap 'rm -f "$drawn"' EXIT
draw | with_drawing >"$drawn" || exit 2
if [ "${1-}" = --draw ]; then
    cp "$drawn" "$page"
elif ! cmp -s "$drawn" "$page"; then
    echo "$page:1: its drawing of the layers is not that of tool/layers.txt; run tool/check_layers.sh --draw"
    exit 1
fi

# shellcheck disable=SC2046 # file names have no spaces
awk '
    # of a path "folder/..." or "group/folder/...", without src/
    function layer_at(first, second) { return group_of[second] == first ? second : first }
    function fail(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }

    FILENAME == "tool/layers.txt" {
        if (/^#/ || !NF) next
        if (/^\[/) { group = substr($0, 2, length($0) - 2); next }
        layer = $1
        if (!sub(/:$/, "", layer)) fail("expected \"layer: layers it may include\"")
        if (n = index(layer, "/")) {
            top[substr(layer, 1, n - 1)]++
            $1 = substr(layer, n + 1)
            for (i = 1; i <= NF; i++) level[substr(layer, 1, n) $i] = top[substr(layer, 1, n - 1)]
            next
        }
        if (layer in layers) fail("layer " layer " stands here twice")
        for (i = 2; i <= NF; i++) {
            if (!($i in layers)) fail(layer " may not look up to " $i ": no row above names it")
            allowed[layer, $i] = 1
        }
        layers[layer] = allowed[layer, layer] = 1
        group_of[layer] = group
        next
    }

    FNR == 1 {
        n = split(FILENAME, path, "/")
        from = path[1] == "cli" ? (n > 2 ? "client" : "cli") : layer_at(path[2], path[3])
        folder = substr(FILENAME, 1, length(FILENAME) - length(path[n]))
        if (!(from in layers)) fail("layer " from " is not in tool/layers.txt")
        own_level = level[from "/" substr(path[n], 1, length(path[n]) - 2)] + 0
    }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
        is_quoted = index($0, "\"") > 0
        split($0, part, /["<>]/)
        name = part[2]
        if (name ~ /^patrickstar(_[a-z]+)?\.h$/) next
        n = split(name, dir, "/")
        its = layer_at(dir[1], dir[2])
        its_level = level[its "/" substr(dir[n], 1, length(dir[n]) - 2)] + 0
        if (its == from ? its_level > own_level : its_level > 0 && its_level < top[its])
            fail("level " own_level + 0 " of " from " may not include " name ", of level " its_level)
        if (name ~ /^\.|\/\./)
            fail("include \"" name "\" by its path from src/, not relative to this folder")
        else if (n > 1 && its in layers) {
            if (!((from, its) in allowed)) fail(from " may not include " its " (" name ")")
        } else if (is_quoted && !((folder name) in own))
            fail("\"" name "\" is neither patrickstar.h, of a layer of tool/layers.txt, nor of this folder")
    }

    BEGIN { for (i = 2; i < ARGC; i++) own[ARGV[i]] = 1 }
    END { exit bad }
' tool/layers.txt $(find src cli -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' 2>/dev/null | sort)
