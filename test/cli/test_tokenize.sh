#!/bin/sh
# Text to tokens and back; token files as training data.
set -u
build=$1
. test/cli/cli_lib.sh

head -c 20000 "$root/data/text/moby-dick.txt" >"$work/a.txt"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output "$work/a.bin" "$work/a.txt"
says out "tokens"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --decode "$work/a.bin"
cmp -s "$work/out" "$work/a.txt" || fail "decoding does not give the text back"
printf 'Hello world' >"$work/b.txt"
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output "$work/b.bin" "$work/b.txt" "$work/b.txt"
says out "b.bin: 5 tokens"
expect 0 "$pstar" train "$work/tiny.json" data.train="$work/a.bin" train.steps=1
expect 2 "$pstar" tokenize --vocab "$root/data/gpt2" "$work/a.txt"
expect 3 "$pstar" tokenize --vocab "$work" --output "$work/c.bin" "$work/a.txt"
head -c 1000 "$work/a.bin" >"$work/cut.bin"
expect 2 "$pstar" train "$work/tiny.json" data.train="$work/cut.bin" train.steps=1
says err "cut.bin"
