#!/bin/sh
# pstar eval on several ranks says what it says on one, of each kind of metric: sums, entities, and the best of a question's
# parts, which are with different ranks.
set -u
. test/cli/ranks_lib.sh
set -- bf16.enabled=false model.embd_pdrop=0 model.resid_pdrop=0 model.attn_pdrop=0 model.n_positions=48 model.type=gpt2 \
    data.validation_split=0 train_micro_batch_size_per_gpu=2 data.pad_to_multiple_of=8 train.threads=1

for word in whale ship harpoon captain sea; do echo "$word"; done | awk '{ printf "{\"text\": \"the %s\", \"label\": %g}\n", $1, NR - 2.5 }' >"$work/number.jsonl"
cat >"$work/several.jsonl" <<END
{"text": "a whale and a ship", "label": ["whale", "ship"]}
{"text": "a ship", "label": ["ship"]}
{"text": "nothing", "label": []}
END
cat >"$work/words.jsonl" <<END
{"tokens": ["Captain", "Ahab", "hunts", "Moby", "Dick"], "ner_tags": ["O", "B-PER", "O", "B-WHALE", "I-WHALE"]}
{"tokens": ["Ishmael", "sees", "Ahab"], "ner_tags": ["B-PER", "O", "B-PER"]}
{"tokens": ["Ahab", "sees", "Ishmael"], "ner_tags": ["B-PER", "O", "B-PER"]}
END
# parts of the second context are the same, so that ranks have the same score for it
sea=$(awk 'BEGIN { for (i = 0; i < 60; i++) printf " sea" }')
cat >"$work/answers.jsonl" <<END
{"question": "who?", "context": "Ahab hunts the whale.", "answers": {"text": ["Ahab"], "answer_start": [0]}}
{"question": "where?", "context": "$sea", "answers": {"text": ["sea sea sea sea sea sea"], "answer_start": [17]}}
{"question": "what?", "context": "It was a long and cold night, and they all saw nothing but the sea, again and again, until somebody cried that there was, at last, the white whale in front of them.", "answers": {"text": ["the white whale"], "answer_start": [131]}}
END
for kind in 'number model.head=sequence_classification model.num_labels=1' \
    'several model.head=sequence_classification model.problem_type=multi_label_classification' \
    'words model.head=token_classification model.num_labels=4' \
    'answers model.head=question_answering data.doc_stride=8 data.sequence_length=32'; do
    name=${kind%% *} members=${kind#* }
    # shellcheck disable=SC2086 # a list of words
    expect 0 "$pstar" train "$work/tiny.json" "$@" data.train="$work/$name.jsonl" train.steps=25 train.output_dir="$work/$name" train.save=true $members
    for n in 1 2 3; do
        # shellcheck disable=SC2086 # a list of words
        expect 0 timeout -k 5 60 mpirun.openmpi -np "$n" "$pstar" eval "$work/tiny.json" "$@" data.train="$work/$name.jsonl" \
            train.output_dir="$work/$name" --split train --json $members
        grep -oE '"[a-z0-9_]+": [-0-9.e]+' "$work/out" | grep -E '"(loss|targets|accuracy|mse|pearson|f1|f1_m...o|precision|recall|exact_match)"' |
            awk '{ printf "%s %.9g\n", $1, $2 }' >"$work/said.$n" # sums in another order have other last digits
        [ "$(wc -l <"$work/said.$n")" -ge 4 ] || fail "$name: few numbers in $(cat "$work/out")"
        cmp -s "$work/said.1" "$work/said.$n" || fail "$name: $n ranks say $(cat "$work/said.$n"), one says $(cat "$work/said.1")"
    done
done
