#!/bin/sh
# model.from_pretrained, CONFIG, --weights and data.tokenizer take the name of a model that is in the local cache of the
# Hugging Face hub, without network; a folder of that name comes first.
set -u
build=$1
. test/cli/cli_lib.sh
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
export HF_HOME="$work/hf"
first=1111111111111111111111111111111111111111 second=2222222222222222222222222222222222222222
repository=$HF_HOME/hub/models--org--tiny

# A snapshot as huggingface_hub lays it out: links to blobs.
snapshot() {
    mkdir -p "$repository/blobs" "$repository/refs" "$repository/snapshots/$1"
    for file in "$work/model"/*; do
        name=$(basename "$file")
        blob=$(sha256sum "$file" | cut -c1-64)
        cp "$file" "$repository/blobs/$blob"
        ln -s "../../blobs/$blob" "$repository/snapshots/$1/$name"
    done
}

expect 0 "$pstar" train "$work/tiny.json" train.output_dir="$work/made" train.steps=2
expect 0 "$pstar" export "$work/made" "$work/model"
cp "$root"/data/gpt2/* "$work/model"

cd "$work" || exit 1
cat >hub.json <<END
{"model": {"from_pretrained": "org/tiny"}, "data": {"train": "$root/data/text/moby-dick.txt", "sequence_length": 16},
 "train": {"steps": 2, "output_dir": "run"}}
END
expect 3 "$pstar" train hub.json
says err "there is no folder org/tiny in $work, and $HF_HOME/hub has no revision main of org/tiny"
says err '`hf download org/tiny`'

snapshot $first
printf $first >"$repository/refs/main"
expect 0 "$pstar" train hub.json
says out "loaded 28 tensors from $repository/snapshots/$first"
weights=$(summary run weights_xxh3)
expect 0 "$pstar" export run exported
for file in tokenizer.json vocab.json; do
    [ ! -e "$root/data/gpt2/$file" ] || [ -f "exported/$file" ] || fail "the tokenizer was not exported: $file"
    [ ! -h "exported/$file" ] || fail "a link into the cache was exported: $file"
done
expect 0 "$pstar" train hub.json model.from_pretrained="$work/model" train.output_dir=same
[ "$(summary same weights_xxh3)" = "$weights" ] || fail "other weights than from the folder"
expect 0 "$pstar" plan org/tiny
expect 0 "$pstar" inspect org/tiny
says out "transformer.wte.weight"
expect 0 "$pstar" train tiny.json data.tokenizer=org/tiny train.output_dir=tokenizer --overwrite
expect 0 "$pstar" train tiny.json train.init_from=org/tiny train.output_dir=init --overwrite

# a newer snapshot: a run that has begun can go on; the old one can be named
sed 's/"gelu_new"/"gelu_new", "more": 1/' model/config.json >config.new && mv config.new model/config.json
snapshot $second
printf $second >"$repository/refs/main"
printf $first >"$repository/refs/v1.0"
expect 0 "$pstar" train hub.json --resume train.steps=3
says out "step 3/3"
for revision in v1.0 $first; do
    expect 0 "$pstar" config hub.json model.from_pretrained=org/tiny@$revision
    says out "snapshots/$first"
done
expect 0 "$pstar" config hub.json
says out "snapshots/$second"
expect 3 "$pstar" config hub.json model.from_pretrained=org/tiny@v2.0
says err '`hf download org/tiny --revision v2.0`'

# a snapshot with a part of the files
mkdir -p "$HF_HOME/hub/models--org--part/snapshots/$first"
expect 3 "$pstar" config hub.json model.from_pretrained=org/part@$first
says err "config.json: there is no such file; this snapshot is not complete: \`hf download org/part --revision $first\`"
cp model/config.json "$HF_HOME/hub/models--org--part/snapshots/$first"
expect 3 "$pstar" train hub.json model.from_pretrained=org/part@$first data.tokenizer="$root/data/gpt2" train.output_dir=part
says err "checkpoints/latest; this snapshot is not complete: \`hf download org/part --revision $first\`"

# the same snapshot as huggingface_hub finds
if "${python:-python3}" -c 'import huggingface_hub' 2>/dev/null; then
    found=$("${python:-python3}" -c 'import huggingface_hub
print(huggingface_hub.snapshot_download("org/tiny", local_files_only=True))') || fail "huggingface_hub"
    [ "$found" = "$repository/snapshots/$second" ] || fail "huggingface_hub finds $found"
else
    echo "not tried: huggingface_hub, beside which the snapshot was to be found"
fi

# a folder comes first
mkdir org && cp -r model org/tiny
expect 0 "$pstar" config hub.json
says out '"from_pretrained": "org/tiny"'
