#!/usr/bin/env python3
"""Do transformers' pipelines give what the lines of a file say, with a folder that pstar exported?

usage: python3 check_heads.py --write DEST          numbers.jsonl, labels.jsonl, words.jsonl, answers.jsonl
       python3 check_heads.py FOLDER DATA.jsonl     one of these files

The texts have the words of make_text_folders.py. Prints the share of lines that got theirs; exit status 0 when that is at
least 95 %.
"""
import json
import os
import random
import sys

os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder is an error, not a download

import torch
import transformers

from make_text_folders import BAD, GOOD, WORDS

SUBJECTS = ["film", "story", "plot"]


def write(dest):
    r = random.Random(5)
    files = {name: open(os.path.join(dest, name + ".jsonl"), "w", encoding="utf-8")
             for name in ("numbers", "labels", "words", "answers")}
    for _ in range(120):
        verdict, subjects = r.choice(GOOD + BAD), r.sample(SUBJECTS, r.randint(0, 2))
        words = ["the"] + subjects + ["was", r.choice(["very", "so", "quite"])]
        words.insert(r.randint(1, len(words)), verdict)
        text, place = " ".join(words), " ".join(words).index(verdict)
        number = GOOD.index(verdict) / 2 if verdict in GOOD else -1 - BAD.index(verdict) / 2
        tags = ["B-GOOD" if w in GOOD else "B-BAD" if w in BAD else "O" for w in words]
        for name, line in (("numbers", {"text": text, "label": number}), ("labels", {"text": text, "label": subjects}),
                           ("words", {"tokens": words, "ner_tags": tags}),
                           ("answers", {"question": "was it good", "context": text,
                                        "answers": {"text": [verdict], "answer_start": [place]}})):
            files[name].write(json.dumps(line) + "\n")


def check_numbers(folder, lines):
    classify = transformers.pipeline("text-classification", folder, device="cpu")
    given = classify([x["text"] for x in lines], batch_size=8, function_to_apply="none")
    return [abs(a["score"] - x["label"]) < 0.3 for a, x in zip(given, lines)]


def check_labels(folder, lines):
    classify = transformers.pipeline("text-classification", folder, device="cpu", top_k=None)
    given = classify([x["text"] for x in lines], batch_size=8)  # by sigmoid, as problem_type says
    return [{a["label"] for a in row if a["score"] > 0.5} == set(x["label"]) for row, x in zip(given, lines)]


def check_words(folder, lines):
    tag = transformers.pipeline("token-classification", folder, device="cpu", aggregation_strategy="simple")
    right = []
    for line in lines:
        wanted = [(w, t[2:]) for w, t in zip(line["tokens"], line["ner_tags"]) if t != "O"]
        right.append([(a["word"], a["entity_group"]) for a in tag(" ".join(line["tokens"]))] == wanted)
    return right


def plain_answer(folder):
    """What the pipeline did that transformers 5 has no more: the best span of the context, by the model itself."""
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def answer(question, context):
        given = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        offsets, in_context = given.pop("offset_mapping")[0].tolist(), [i == 1 for i in given.sequence_ids(0)]
        with torch.no_grad():
            out = model(**given)
        start, end = out.start_logits[0].tolist(), out.end_logits[0].tolist()
        spans = [(start[i] + end[k], i, k) for i in range(len(start)) for k in range(i, len(start)) if in_context[i] and in_context[k]]
        _, i, k = max(spans)
        return {"answer": context[offsets[i][0]:offsets[k][1]]}

    return answer


def check_answers(folder, lines):
    try:
        answer = transformers.pipeline("question-answering", folder, device="cpu")
    except KeyError:
        answer = plain_answer(folder)
    return [answer(question=x["question"], context=x["context"])["answer"] == x["answers"]["text"][0] for x in lines]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    if sys.argv[1] == "--write":
        write(sys.argv[2])
        return
    name = os.path.splitext(os.path.basename(sys.argv[2]))[0]
    with open(sys.argv[2], encoding="utf-8") as f:
        lines = [json.loads(line) for line in f][:60]
    right = globals()["check_" + name](sys.argv[1], lines)
    print(f"{name}: {sum(right)} of {len(right)} right")
    sys.exit(0 if sum(right) >= 0.95 * len(right) else 1)


if __name__ == "__main__":
    main()
