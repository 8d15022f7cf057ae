#!/bin/sh
# Every command of pstar that stands by itself in a fenced block of README.md and doc/ is accepted and succeeds, in the
# order of the page: with a tiny model for config.json, and the demo cut to a few steps. Other blocks: doc_blocks.txt.
# Every target and variable of make that a page names is one of the Makefile.
set -u
build=$1
. test/cli/cli_lib.sh
. test/cli/page_lib.sh
ln -s "$root/data" "$root/examples" "$root/test" "$work/"
# A host budget: between GPUs messages go through host memory.
sed "s,\"$work/run\",\"runs/tiny\",; s,\"host\": 0,\"host\": \"100MB\"," "$work/tiny.json" >"$work/config.json"

# The commands of a page, without prompt and comment; a line that only looks like one has a colon.
commands() {
    awk '/^ *```/ { inside = !inside; next } inside' "$1" |
        sed -n 's/^ *\$ //; s/  *# .*//; s/^build\/pstar /pstar /; /^pstar [a-z]*:/d; /\\$/d; /^pstar /p'
}

# What a page has of make, in fenced blocks and between backticks: one call a line, without comment and quoted values.
makes() {
    {
        awk '/^ *```/ { inside = !inside; next } inside' "$1" | sed 's/#.*//; s/&&/\n/g'
        grep -o '`make[^`]*`' "$1" | tr -d '`'
    } | sed -n 's/="[^"]*"/=/g; s/^ *\(make .*\)/\1/p'
}

# Every target that is named there is one of the Makefile, and every variable.
n=0
targets=" $(sed -n 's/^\.PHONY: //p' Makefile) "
for page in README.md CONTRIBUTING.md doc/*.md; do
    makes "$page" >"$work/makes"
    while read -r _ words; do
        for word in $words; do
            case $word in
            *=*) grep -q "^${word%%=*} *[?:]*=" Makefile || fail "$page: make $words: no variable ${word%%=*}" ;;
            *) case $targets in *" $word "*) ;; *) fail "$page: make $words: no target $word" ;; esac ;;
            esac
            n=$((n + 1))
        done
    done <"$work/makes"
done
[ "$n" -ge 20 ] || fail "only $n words of make were found: have the pages changed?"
echo "$n targets and variables of make"

n=0
for page in README.md doc/*.md; do
    [ "$page" != doc/finetune.md ] || continue
    commands "$page" >"$work/commands"
    while read -r line; do
        case $line in
        *finetune*) continue ;;
        *"train examples/demo.json"*) line="$line train.steps=5" ;;
        esac
        case $line in # one run after the other goes into the same folder here
        *--resume* | *--overwrite* | *--help*) ;;
        "pstar train "*) line="$line --overwrite" ;;
        esac
        rest=$(printf '%s\n' "${line#pstar }" | sed 's,org/model-folder,gpt2,; s,CONFIG,config.json,; s,runs/config,runs/tiny,; s,FILE,examples/hardware/a100-40gb-x8.json,')
        [ -e "$work/other.safetensors" ] || ! [ -d "$work/runs/tiny" ] || {
            (cd "$work" && expect 0 "$pstar" export runs/tiny hf) || fail "no weights to evaluate"
            cp "$work/hf/model.safetensors" "$work/other.safetensors"
        }
        # shellcheck disable=SC2086 # the arguments are words
        (cd "$work" && "$pstar" $rest >out 2>err </dev/null) ||
            { cat "$work/out" "$work/err"; fail "$page: $line"; }
        n=$((n + 1))
    done <"$work/commands"
done
[ "$n" -ge 15 ] || fail "only $n commands were found: have the pages changed?"
echo "$n commands"

# The configurations of doc/train.md: the whole one is planned, the one that chooses parameters is read.
block doc/train.md json 1 >"$work/whole.json"
(cd "$work" && expect 0 "$pstar" plan whole.json --hardware laptop --no-advice) || exit 1
says out "124 million parameters"
{ echo '{'; block doc/train.md json 2; echo '}'; } >"$work/part.json"
(cd "$work" && expect 0 "$pstar" config part.json --given) || exit 1
says out "classifier.*"

# The ranks of doc/cluster.md on one machine, two of them, where there is Open MPI.
if command -v mpirun.openmpi >/dev/null && [ -e "$build/libpatrickstar_openmpi.so" ]; then
    . test/cli/mpi_env.sh
    export PSTAR="$pstar" PATH="$root/$build:$PATH"
    for n in 2 5; do
        block doc/cluster.md sh $n | sed 's/-n 4/-n 2/; s/local.sh 4/local.sh 2/; s/save_interval=100/save_interval=2/' >"$work/block"
        (cd "$work" && rm -rf runs/tiny && expect 0 timeout -k 5 120 sh -eu block) || { cat "$work/block"; fail "doc/cluster.md, block $n"; }
        says out "2 ranks, mpi"
    done
    [ "$(grep -c local.sh "$work/block")" -eq 1 ] || fail "doc/cluster.md: where is the loop of local.sh?"
else
    echo "not tried: ranks (Open MPI)"
fi
