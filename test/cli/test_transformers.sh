#!/bin/sh
# What pstar makes of a folder that transformers saved, and what transformers makes of the folder that pstar exports: labels,
# data, tokenizers. A case is a function below; each begins at the folders that test/golden/make_text_folders.py writes into
# $models. Needs an interpreter with transformers: $PS_TRANSFORMERS_PYTHON, or build/transformers (make test-data); skipped without.
set -u
build=$1
. test/cli/cli_lib.sh
. test/cli/page_lib.sh

python=${PS_TRANSFORMERS_PYTHON:-$root/build/transformers/bin/python}
[ -x "$python" ] || skip "no $python: make test-data makes it"

export TRANSFORMERS_VERBOSITY=error TRANSFORMERS_OFFLINE=1 HF_HUB_OFFLINE=1
golden=$root/test/golden
models=$work/models
expect 0 "$python" -W ignore "$golden/make_text_folders.py" "$models"

reviews="\"train\": \"$models/reviews.jsonl\", \"validation\": \"$models/unseen.jsonl\""

# config NAME MODEL_MEMBERS DATA_MEMBERS TRAIN_MEMBERS: $work/NAME.json, whose run is $work/run-NAME
config() {
    cat >"$work/$1.json" <<END
{
  "train_micro_batch_size_per_gpu": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "model": {$2},
  "data": {$3},
  "memory": {"device": "20MB", "host": 0, "disk": 0},
  "train": {"output_dir": "$work/run-$1", $4}
}
END
}

# eval_says TEXT ARGUMENT...: pstar eval prints it
eval_says() {
    text=$1
    shift
    expect 0 "$pstar" eval "$@"
    says out "$text"
}

# A classifier with an id2label that is not in byte order: data, pstar eval and pipeline mean the same by a name, before and after.
case_labels_of_the_folder() {
    config labels "\"from_pretrained\": \"$models/bert_labels\"" "$reviews, \"sequence_length\": 32" '"steps": 60'
    expect 0 "$pstar" train "$work/labels.json"
    eval_says "accuracy    100.00 %" "$work/labels.json"
    expect 0 "$pstar" export "$work/run-labels" "$work/hf-labels"
    expect 0 "$python" -W ignore "$golden/check_pipeline.py" "$work/hf-labels" "$models/unseen.jsonl"
    cat "$work/out"
    says out "{0: 'positive', 1: 'negative'}"
    config labels_again "\"from_pretrained\": \"$work/hf-labels\"" "$reviews, \"sequence_length\": 32" '"steps": 1'
    expect 3 "$pstar" eval "$work/labels_again.json" # nothing was trained there
    says err "--weights $work/hf-labels"
    eval_says "accuracy    100.00 %" "$work/labels_again.json" --weights "$work/hf-labels"
}

# A new head names its classes as the data do, and knows which token is padding: transformers pads a batch with it.
case_labels_of_a_new_head() {
    config new_head "\"from_pretrained\": \"$models/gpt2_base\", \"head\": \"sequence_classification\", \"new_head\": true,
        \"embd_pdrop\": 0, \"resid_pdrop\": 0, \"attn_pdrop\": 0" "$reviews, \"sequence_length\": 64" '"steps": 200'
    expect 0 "$pstar" train "$work/new_head.json"
    eval_says "accuracy    100.00 %" "$work/new_head.json"
    expect 0 "$pstar" export "$work/run-new_head" "$work/hf-new_head"
    expect 0 "$python" -W ignore "$golden/check_pipeline.py" "$work/hf-new_head" "$models/unseen.jsonl"
    cat "$work/out"
    says out "{0: 'negative', 1: 'positive'}"
    says out "padding 257"
}

# Each of the other heads, learnt until pstar eval says so; and transformers' pipelines find the same in the folder that is exported.
case_heads() {
    mkdir "$work/heads"
    expect 0 "$python" -W ignore "$golden/check_heads.py" --write "$work/heads"
    # NAME|MODEL_MEMBERS|STEPS|METRIC|AT_LEAST
    for head in 'numbers|"head": "sequence_classification", "num_labels": 1|250|pearson|0.98' \
        'labels|"head": "sequence_classification", "num_labels": 3, "problem_type": "multi_label_classification"|2000|exact_match|0.97' \
        'words|"head": "token_classification", "num_labels": 3|120|f1|0.97' \
        'answers|"head": "question_answering"|250|exact_match|0.97'; do
        name=${head%%|*} rest=${head#*|} run=head-${head%%|*}
        members=${rest%%|*} rest=${rest#*|}
        steps=${rest%%|*} rest=${rest#*|}
        config "$run" "\"from_pretrained\": \"$models/bert_base\", \"new_head\": true, \"hidden_dropout_prob\": 0,
            \"attention_probs_dropout_prob\": 0, $members" "\"train\": \"$work/heads/$name.jsonl\", \"sequence_length\": 32,
            \"doc_stride\": 8" "\"steps\": $steps"
        [ "$name" = answers ] || sed -i '/"doc_stride"/s/,* *"doc_stride": 8//; s/"sequence_length": 32,$/"sequence_length": 32/' "$work/$run.json"
        expect 0 "$pstar" train "$work/$run.json"
        expect 0 "$pstar" eval "$work/$run.json" --split train --json
        sed -n "s/.*\"${rest%%|*}\": \([-0-9.e]*\).*/\1/p" "$work/out" | awk -v least="${rest#*|}" '{ ok = $1 >= least } END { exit !ok }' ||
            fail "$name: $(cat "$work/out")"
        expect 0 "$pstar" export "$work/run-$run" "$work/hf-$run"
        expect 0 "$python" -W ignore "$golden/check_heads.py" "$work/hf-$run" "$work/heads/$name.jsonl"
        cat "$work/out"
    done
    grep -q '"problem_type": "regression"' "$work/hf-head-numbers/config.json" || fail "no regression: $(cat "$work/hf-head-numbers/config.json")"
}

# The exported folder's tokenizer is that of the folder that came, chat template and all.
case_tokenizer_files() {
    config tokenizer "\"from_pretrained\": \"$models/gpt2_base\"" '"sequence_length": 64' '"steps": 0'
    expect 0 "$pstar" train "$work/tokenizer.json"
    expect 0 "$pstar" export "$work/run-tokenizer" "$work/hf-tokenizer"
    expect 0 "$python" -W ignore "$golden/check_tokenizer.py" "$models/gpt2_base" "$work/hf-tokenizer"
    cat "$work/out"
    for file in "$models/gpt2_base"/*; do
        [ -e "$work/hf-tokenizer/$(basename "$file")" ] || fail "$(basename "$file") is not exported"
    done
}

# Folders of tokenizers as transformers saves them, without a maximum length: the same ids, and the same text back.
case_tokenizers() {
    expect 0 "$python" -W ignore "$golden/check_tokenizers.py" "$pstar" "$work/tokenizers"
    cat "$work/out"
    says out "maximum length 1000000000000000019884624838656"
}

# A model whose tokenizer cannot be read here is trained on files of tokens, and on text it says what is not supported.
case_unknown_tokenizer() {
    cp -r "$models/gpt2_base" "$models/foreign"
    printf '{"model": {"type": "Unigram", "vocab": []}}' >"$models/foreign/tokenizer.json"
    expect 0 "$pstar" tokenize --vocab "$models/gpt2_base" --output "$work/ids.bin" "$root/README.md"
    config foreign "\"from_pretrained\": \"$models/foreign\"" "\"train\": \"$work/ids.bin\", \"sequence_length\": 64" '"steps": 2'
    expect 0 "$pstar" train "$work/foreign.json"
    expect 2 "$pstar" train --overwrite "$work/foreign.json" data.train="$root/README.md"
    says err "model Unigram is not supported"
}

# A tokenizer with more tokens than the model: the embeddings grow, the rows that were there stay, transformers loads what came out.
case_more_tokens() {
    config more_tokens "\"from_pretrained\": \"$models/gpt2_base\"" \
        "\"tokenizer\": \"$models/more_tokens\", \"sequence_length\": 64, \"train\": \"$root/README.md\"" '"steps": 0'
    expect 2 "$pstar" train --overwrite "$work/more_tokens.json" train.steps=1
    says err "has 260 tokens; model.resize_token_embeddings = true"
    expect 0 "$pstar" train --overwrite "$work/more_tokens.json" model.resize_token_embeddings=true model.pad_to_multiple_of=64
    says out "the embeddings have 320 tokens, the last 62 at random"
    expect 0 "$pstar" export "$work/run-more_tokens" "$work/hf-more_tokens"
    expect 0 "$python" -W ignore - "$models/gpt2_base" "$work/hf-more_tokens" <<'END'
import sys, transformers
before, after = (transformers.AutoModelForCausalLM.from_pretrained(f) for f in sys.argv[1:])
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[2])
a, b = before.transformer.wte.weight, after.transformer.wte.weight
assert after.config.vocab_size == 320 and b.shape[0] == 320 and len(tokenizer) == 260, (after.config, b.shape)
assert (a == b[:258]).all() and (after.lm_head.weight == b).all()
assert 0.01 < float(b[258:].std()) < 0.03, b[258:].std()
assert tokenizer("<|im_start|>")["input_ids"] == [258]
END
    expect 0 "$pstar" train --overwrite "$work/more_tokens.json" model.resize_token_embeddings=true train.steps=3
    says out "the embeddings have 260 tokens, the last 2 at random"
    eval_says "perplexity" "$work/more_tokens.json" model.resize_token_embeddings=true --split train --steps 1
}

# A hundred tokens without sampling, with keys and values kept: those of transformers, for each family, with windows and grouped queries.
case_generate() {
    prompt="Call me Ishmael. Some years ago"
    expect 0 "$python" -W ignore "$golden/check_generate.py" "$work" "$root/data/gpt2" "$prompt" 110
    for text in "$work"/gpt2.txt "$work"/llama.txt "$work"/mistral.txt "$work"/qwen3.txt; do
        [ -f "$text" ] || continue # a family that this transformers does not have
        folder=${text%.txt}
        config generate "\"from_pretrained\": \"$folder\"" "\"tokenizer\": \"$root/data/gpt2\"" '"steps": 0'
        expect 0 "$pstar" generate "$work/generate.json" --weights "$folder" --prompt "$prompt" --tokens 110 --temperature 0 \
            memory.device=60MB
        cmp -s "$work/out" "$text" || { diff "$work/out" "$text"; fail "another text than transformers: $folder"; }
    done
}

# The lines of Python in doc/finetune.md, with what its commands export. Qwen2's family, as this transformers may lack Qwen3.
case_finetune_page() {
    mkdir "$work/reader"
    download qwen2 "$work/reader/Qwen3-0.6B"
    block doc/finetune.md sh 2 | sed '/^pstar/d' >"$work/configuration"
    # as check_generate.py: answering what is asked here imports parts of torch 1.13 that Python 3.11 refuses
    cat >"$work/ask.py" <<'END'
import transformers.generation.utils
transformers.generation.utils.is_fsdp_managed_module = lambda model: False
END
    block doc/finetune.md python 1 >"$work/lines"
    cat "$work/lines" >>"$work/ask.py"
    (cd "$work/reader" && sh -eu "$work/configuration") && [ -s "$work/lines" ] || fail "the page has no configuration or no Python"
    # enough to answer with words
    set -- finetune.json data.train="$root/data/chat/train.jsonl" optimizer.params.lr=0.01
    (cd "$work/reader" && expect 0 "$pstar" train "$@") || exit 1
    (cd "$work/reader" && expect 0 "$pstar" export runs/finetune finetuned) || exit 1
    (cd "$work/reader" && expect 0 "$pstar" generate "$@" --chat --prompt "Is the library open on Sunday?" --tokens 40 --temperature 0) || exit 1
    cp "$work/out" "$work/answer"
    (cd "$work/reader" && expect 0 "$python" -W ignore "$work/ask.py") || exit 1
    cat "$work/out"
    grep -q '[a-z]' "$work/out" && cmp "$work/answer" "$work/out" || { cat "$work/answer"; fail "transformers answers otherwise than pstar"; }
}

case_labels_of_the_folder
case_labels_of_a_new_head
case_heads
case_tokenizer_files
case_tokenizers
case_unknown_tokenizer
case_more_tokens
case_generate
case_finetune_page
