#!/bin/sh
# Check every #include under src/ and cli/ against tool/layers.txt: a file may include its own floor, the floors its row
# names, the public headers, and headers of its own folder or one below. What lies in cli/train is the floor client. The
# table itself may only look down: a row names rows above it.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck disable=SC2046 # file names have no spaces
awk '
    function fail(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }

    FILENAME == "tool/layers.txt" {
        if (/^#/ || !NF) next
        floor = $1
        if (!sub(/:$/, "", floor)) fail("expected \"floor: floors it may include\"")
        if (floor in floors) fail("floor " floor " stands here twice")
        for (i = 2; i <= NF; i++) {
            if (!($i in floors)) fail(floor " may not look up to " $i ": no row above names it")
            allowed[floor, $i] = 1
        }
        floors[floor] = allowed[floor, floor] = 1
        next
    }

    FNR == 1 {
        n = split(FILENAME, path, "/")
        from = path[1] == "cli" ? (n > 2 ? "client" : "cli") : path[2]
        folder = substr(FILENAME, 1, length(FILENAME) - length(path[n]))
        if (!(from in floors)) fail("floor " from " is not in tool/layers.txt")
    }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
        is_quoted = index($0, "\"") > 0
        split($0, part, /["<>]/)
        name = part[2]
        if (name ~ /^patrickstar(_[a-z]+)?\.h$/) next
        n = split(name, dir, "/")
        if (name ~ /^\.|\/\./)
            fail("include \"" name "\" by its path from src/, not relative to this folder")
        else if (n > 1 && dir[1] in floors) {
            if (!((from, dir[1]) in allowed)) fail(from " may not include " dir[1] " (" name ")")
        } else if (is_quoted && !((folder name) in own))
            fail("\"" name "\" is neither patrickstar.h, of a floor of tool/layers.txt, nor of this folder")
    }

    BEGIN { for (i = 2; i < ARGC; i++) own[ARGV[i]] = 1 }
    END { exit bad }
' tool/layers.txt $(find src cli -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' 2>/dev/null | sort)
