#!/bin/sh
# Data that gzip and zstd have compressed: the same weights and evaluations as of the files themselves, for language models,
# conversations and classifiers; the memory of a run stays what it was; what cannot be read is refused with a command.
set -u
build=$1
. test/cli/cli_lib.sh
command -v gzip >/dev/null && command -v zstd >/dev/null || { echo "skipped: no gzip or zstd"; exit 77; }
cd "$work" || exit 1

python3 - "$root" <<'EOP'
import json, sys
text = open(sys.argv[1] + "/data/text/moby-dick.txt", encoding="utf-8", errors="replace").read()[:200000]
parts = [p for p in text.split("\n\n") if len(p) > 20]
with open("lm.jsonl", "w") as lm, open("chat.jsonl", "w") as chat, open("labels.jsonl", "w") as labels:
    for i, p in enumerate(parts):
        lm.write(json.dumps({"text": p}) + "\n")
        chat.write(json.dumps({"prompt": p[:20], "completion": p[20:60]}) + "\n")
        labels.write(json.dumps({"text": p[:60], "label": ["no", "yes"][i % 2]}) + "\n")
EOP
for file in lm.jsonl chat.jsonl labels.jsonl; do
    gzip -k $file
    zstd -q -k $file
done
head -c 100000 lm.jsonl | gzip >cat.jsonl.gz && tail -c +100001 lm.jsonl | gzip >>cat.jsonl.gz # two members, one text
head -c 50000 "$root/data/text/moby-dick.txt" >book.txt && gzip -k book.txt

# trained NAME DATA [KEY=VALUE ...]: weights of a run
trained() {
    name=$1 data=$2
    shift 2
    expect 0 "$pstar" train tiny.json data.train="$data" train.output_dir="$name" train.steps=3 --overwrite "$@"
    summary "$name" weights_xxh3
}
want=$(trained plain lm.jsonl)
for data in lm.jsonl.gz lm.jsonl.zst cat.jsonl.gz; do
    [ "$(trained packed $data)" = "$want" ] || fail "$data: other weights"
done
cp lm.jsonl.gz other-name
[ "$(trained packed other-name data.format=jsonl)" = "$want" ] || fail "the content does not say that it is compressed"
[ "$(trained packed book.txt.gz)" = "$(trained plain book.txt)" ] || fail "text: other weights"
[ "$(trained packed chat.jsonl.zst)" = "$(trained plain chat.jsonl)" ] || fail "prompts: other weights"
# opening compressed text takes memory for the text, and not for its tokens as well
for i in $(seq 20); do cat "$root/data/text/moby-dick.txt"; done >long.txt
n=$(wc -c <long.txt)
gzip -1 long.txt
trained short book.txt.gz >hash
trained long long.txt.gz >hash
case $build in
*address* | *thread*) ;; # a sanitizer has memory of its own
*)
    [ $(($(summary long rss_peak_bytes) - $(summary short rss_peak_bytes))) -lt $((n * 3 / 2)) ] ||
        fail "opening $n bytes of text took $(summary long rss_peak_bytes) bytes, a short text $(summary short rss_peak_bytes)"
    expect 2 "$pstar" train tiny.json data.train=long.txt.gz train.output_dir=limited memory.device=auto memory.host=auto memory.total=30MB
    says err "long.txt.gz: more than "
    says err "which is what memory.total leaves"
    ;;
esac
validated() { trained "$1" "$2" data.validation="$3" data.validation_split=0 train.eval_interval=3; }
plain=$(validated plain lm.jsonl lm.jsonl) packed=$(validated packed lm.jsonl.gz lm.jsonl.zst)
[ "$plain" = "$packed" ] || fail "with validation: other weights"
for run in plain packed; do grep -o '"eval_loss":[0-9.]*' $run/metrics.jsonl >$run.eval; done
cmp plain.eval packed.eval || fail "other validation losses"

if [ -d "$root/build/minilm" ]; then
    for data in labels.jsonl labels.jsonl.gz; do
        expect 0 "$pstar" tokenize --sample 3 "$root/examples/finetune.json" data.train=$data data.validation= \
            data.validation_split=0.1 model.from_pretrained="$root/build/minilm" data.labels=no,yes
        sed 's/labels.jsonl.gz/labels.jsonl/' out >"sample-$data"
    done
    cmp sample-labels.jsonl sample-labels.jsonl.gz || fail "a classifier's samples differ"
else
    echo "not tried: a classifier (make test-data)"
fi

# a run goes on with another compression of the same text
expect 0 "$pstar" train tiny.json data.train=lm.jsonl train.output_dir=resumed train.steps=3 --overwrite
expect 0 "$pstar" train tiny.json data.train=lm.jsonl.zst train.output_dir=resumed train.steps=5 --resume
expect 0 "$pstar" train tiny.json data.train=lm.jsonl train.output_dir=whole train.steps=5 --overwrite
[ "$(summary resumed weights_xxh3)" = "$(summary whole weights_xxh3)" ] || fail "resumed with compressed data: other weights"

# damage, with the file and what is wrong
refused() {
    expect "$1" "$pstar" train tiny.json data.train="$2" train.output_dir=refused
    says err "$3"
}
head -c 20000 lm.jsonl.gz >cut.jsonl.gz
head -c 20000 lm.jsonl.zst >cut.jsonl.zst
refused 2 cut.jsonl.gz "cut.jsonl.gz: offset 20000: the compressed bytes end before the text does: is the file truncated?"
refused 2 cut.jsonl.zst "cut.jsonl.zst: offset 20000: the compressed bytes end before the text does: is the file truncated?"
{ cat lm.jsonl.gz; echo garbage; } >tail.jsonl.gz
refused 2 tail.jsonl.gz "damaged: after the last gzip member come bytes"
printf '{"text": "a"}\n{"text": 1}\n' | gzip >wrong.jsonl.gz
refused 2 wrong.jsonl.gz 'wrong.jsonl.gz: line 2, offset 14: "text" is an integer'
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output tokens.bin book.txt
expect 0 "$pstar" tokenize --vocab "$root/data/gpt2" --output same.bin book.txt.gz
cmp tokens.bin same.bin || fail "other tokens of a compressed text"
gzip -k tokens.bin
refused 2 tokens.bin.gz 'a token file is read at random places and cannot be compressed: `gzip -d tokens.bin.gz`'
echo PAR1 >table.parquet
refused 2 table.parquet '`python -m patrickstar.convert table.parquet table.jsonl`'
mkdir saved
refused 2 saved '`python -m patrickstar.convert saved saved.jsonl`'
