#!/bin/sh
# Fine-tuning for other things than one label of a text: train, eval with its metrics, bad data named with their lines.
set -u
build=$1
. test/cli/cli_lib.sh
set -- bf16.enabled=false model.embd_pdrop=0 model.resid_pdrop=0 model.attn_pdrop=0 model.n_positions=48 model.type=gpt2 \
    data.validation_split=0 train_micro_batch_size_per_gpu=3 data.pad_to_multiple_of=8

# learns NAME STEPS OVERRIDE...: on $work/NAME.jsonl; then pstar eval is on $work/out as JSON
learns() {
    name=$1 steps=$2
    shift 2
    expect 0 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/$name.jsonl" train.steps="$steps" train.output_dir="$work/$name" "$@"
    expect 0 "$pstar" eval "$work/tiny.json" data.train="$work/$name.jsonl" train.output_dir="$work/$name" --split train --json "$@"
}

# judged NAME OTHER OVERRIDE...: the model of NAME on $work/OTHER.jsonl, which it never saw
judged() {
    name=$1 other=$2
    shift 2
    expect 0 "$pstar" eval "$work/tiny.json" data.train="$work/$other.jsonl" train.output_dir="$work/$name" --split train --json "$@"
}

# at_least KEY VALUE: of the evaluation; at_most likewise
value() { sed -n "s/.*\"$1\": \([-0-9.e]*\).*/\1/p" "$work/out"; }
at_least() { awk -v a="$(value "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }' || fail "$1 is $(value "$1"), below $2: $(cat "$work/out")"; }
at_most() { awk -v a="$(value "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a <= b) }' || fail "$1 is $(value "$1"), above $2: $(cat "$work/out")"; }

# a number for each text
for word in whale ship harpoon captain; do echo "$word"; done | awk '{ for (i = 0; i < 4; i++) printf "{\"text\": \"the %s\", \"label\": %g}\n", $1, NR - 2.5 }' >"$work/number.jsonl"
learns number 200 "$@" model.head=sequence_classification model.num_labels=1
at_least targets 16 # rows after the last text count nothing
at_most targets 16
at_most mse 0.1
at_least pearson 0.97
awk -v a="$(value mse)" -v b="$(value loss)" 'BEGIN { exit !(a - b < 1e-4 && b - a < 1e-4) }' || fail "mse is not the loss: $(cat "$work/out")"
grep -q accuracy "$work/out" && fail "a regression has no accuracy: $(cat "$work/out")"
grep -q '"problem_type": "auto"' "$work/number/summary.json" || fail "no problem_type in the summary"
awk '{ sub(/"label": /, "\"label\": 1"); print }' "$work/number.jsonl" | sed 's/"label": 1-/"label": -/' >"$work/far.jsonl" # 10 more, of two
judged number far "$@" model.head=sequence_classification model.num_labels=1
at_least mse 40
at_most mse 60

# one label a text: a has 1 right, 1 wrongly; b has 2 right, and 1 that is not found: F1 of 2/3 and 4/5
for line in 'whale a' 'ship a' 'harpoon b' 'captain b'; do echo "$line"; done | awk '{ printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", $1, $2 }' >"$work/one.jsonl"
sed 's/"ship", "label": "a"/"ship", "label": "b"/' "$work/one.jsonl" >"$work/one_other.jsonl"
learns one 60 "$@" model.head=sequence_classification
at_least f1_macro 1
judged one one_other "$@" model.head=sequence_classification
at_least f1_macro 0.7333
at_most f1_macro 0.7334

# several labels, by name, none, and as numbers
cat >"$work/several.jsonl" <<END
{"text": "a whale and a ship", "label": ["whale", "ship"]}
{"text": "a ship", "label": ["ship"]}
{"text": "a whale", "label": "whale"}
{"text": "nothing", "label": []}
END
learns several 60 "$@" model.head=sequence_classification model.problem_type=multi_label_classification
at_least f1_micro 1
at_least f1_macro 1
at_least exact_match 1
at_least accuracy 1
grep -q '"labels": "ship,whale"' "$work/several/summary.json" || fail "no labels in the summary"
expect 0 "$pstar" eval "$work/tiny.json" data.train="$work/several.jsonl" train.output_dir="$work/several" --split train "$@" \
    model.head=sequence_classification model.problem_type=multi_label_classification
says out "f1_micro    1.0000"
# ship: 2 right, 1 not found; whale: 1 right, 1 wrongly, 1 not found
cat >"$work/several_other.jsonl" <<END
{"text": "a whale and a ship", "label": ["ship"]}
{"text": "a ship", "label": ["ship", "whale"]}
{"text": "a whale", "label": "whale"}
{"text": "nothing", "label": [1, 0]}
END
judged several several_other "$@" model.head=sequence_classification model.problem_type=multi_label_classification
at_least f1_micro 0.6666
at_most f1_micro 0.6667
at_least f1_macro 0.65
at_most f1_macro 0.65
at_most exact_match 0.25
at_least exact_match 0.25
at_most accuracy 0.625
at_least accuracy 0.625

# labels of words, as entities
cat >"$work/words.jsonl" <<END
{"tokens": ["Captain", "Ahab", "hunts", "Moby", "Dick"], "ner_tags": ["O", "B-PER", "O", "B-WHALE", "I-WHALE"]}
{"tokens": ["Ishmael", "sees", "Ahab"], "ner_tags": ["B-PER", "O", "B-PER"]}
END
learns words 60 "$@" model.head=token_classification model.num_labels=4 model.classifier_dropout=0
at_least f1 1
at_least precision 1
at_least recall 1
sed 's/"B-WHALE", "I-WHALE"/"O", "O"/' "$work/words.jsonl" >"$work/words_other.jsonl" # 3 of 4 entities that it finds
judged words words_other "$@" model.head=token_classification model.num_labels=4
at_least precision 0.75
at_most precision 0.75
at_least recall 1
at_most f1 0.8572
learns words 60 "$@" model.head=token_classification model.num_labels=4 model.classifier_dropout=0 train.label_smoothing=0.1 \
    train.class_weights=2,1,1,0.5
at_least f1 1
at_least loss 0.3 # of smoothed labels it stays above 0

# answers; the second context takes several rows
cat >"$work/answers.jsonl" <<END
{"question": "who?", "context": "Ahab hunts the whale.", "answers": {"text": ["Ahab"], "answer_start": [0]}}
{"question": "what?", "context": "It was a long and cold night, and they all saw nothing but the sea, again and again, until somebody cried that there was, at last, the white whale in front of them.", "answers": {"text": ["the white whale"], "answer_start": [131]}}
END
learns answers 120 "$@" model.head=question_answering data.doc_stride=8 data.sequence_length=32
at_least exact_match 1
at_least f1 1
sed 's/"the white whale"\], "answer_start": \[131\]/"whale"], "answer_start": [141]/' "$work/answers.jsonl" >"$work/answers_other.jsonl"
judged answers answers_other "$@" model.head=question_answering data.doc_stride=8 data.sequence_length=32
at_least exact_match 0.5
at_most exact_match 0.5
at_least f1 0.8333 # one of two words too many: 2/3
at_most f1 0.8334

# a sample as it is trained on
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" "$@" data.train="$work/words.jsonl" data.shuffle=false model.head=token_classification \
    model.num_labels=4
says out 'B-PER        " A"'
says out '5976               "hab"'
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" "$@" data.train="$work/answers.jsonl" data.shuffle=false data.doc_stride=8 \
    model.head=question_answering
says out '*  "hab"'
expect 0 "$pstar" tokenize --sample 0 "$work/tiny.json" "$@" data.train="$work/several.jsonl" data.shuffle=false \
    model.head=sequence_classification model.problem_type=multi_label_classification
says out 'label 1 whale: 1'

# resumed with the same bits, each kind
for kind in 'number model.head=sequence_classification model.num_labels=1' 'words model.head=token_classification model.num_labels=4' \
    'answers model.head=question_answering data.doc_stride=8 data.sequence_length=32'; do
    name=${kind%% *} members=${kind#* }
    # shellcheck disable=SC2086 # a list of words
    resumed() { expect 0 "$pstar" train "$work/tiny.json" "$@" data.train="$work/$name.jsonl" train.save_interval=2 $members; }
    resumed "$@" train.output_dir="$work/whole-$name" train.steps=4
    resumed "$@" train.output_dir="$work/parts-$name" train.steps=2
    resumed "$@" train.output_dir="$work/parts-$name" train.steps=4 --resume
    cmp -s "$work/whole-$name/model.safetensors" "$work/parts-$name/model.safetensors" || fail "$name: other weights after a resume"
done

# what is wrong is named
bad() {
    printf '%s\n' "$2" >"$work/bad.jsonl"
    says_what=$1
    shift 2
    expect 2 "$pstar" train --overwrite "$work/tiny.json" data.train="$work/bad.jsonl" "$@"
    says err "bad.jsonl: line 1, offset 0: $says_what"
}
bad '"label" is a string, expected numbers' '{"text": "a", "label": "x"}' "$@" model.head=sequence_classification model.num_labels=1
bad '"label" has 1 numbers, the model has 2' '{"text": "a", "label": [1]}' "$@" model.head=sequence_classification model.problem_type=regression
bad '"label"[1] is 2, expected 0 to 1' '{"text": "a", "label": [0, 2]}' "$@" model.head=sequence_classification model.problem_type=multi_label_classification
bad '"tokens" has 2 words, "labels" 1 labels' '{"tokens": ["a", "b"], "labels": [0]}' "$@" model.head=token_classification
bad 'label 2, expected 0 to 1' '{"tokens": ["a"], "labels": [2]}' "$@" model.head=token_classification
bad "the context does not have the answer 'b' where answer_start says" \
    '{"question": "q", "context": "a b", "answers": {"text": ["b"], "answer_start": [1]}}' "$@" model.head=question_answering
