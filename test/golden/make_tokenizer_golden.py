#!/usr/bin/env python3
"""What Hugging Face's `tokenizers` makes of a megabyte of mixed text, for test/data/test_tokenizer_golden.c.

usage (from the repository root): pip install tokenizers==0.23.* xxhash, then
    python3 test/golden/make_tokenizer_golden.py --train    # writes fragments and the small tokenizers, too
    python3 test/golden/make_tokenizer_golden.py            # writes test/golden/tokenizers.h only

The text is not committed, only what it is made of: tokenizer_fragments.bin, byte strings each followed by 0xFF, and
data/text. mixed_text() here and in the test are the same few lines. Hashes are XXH3 (64 bits) over the ids as little-
endian int32, and over each block of 16384 ids, so that a difference is located.
"""
import json
import lzma
import random
import struct
import sys
import unicodedata

import xxhash
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = "test/golden/tokenizers/"
FRAGMENTS = "test/golden/tokenizer_fragments.bin"
TEXT_BYTES = 1 << 20
BLOCK_IDS = 16384
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
LLAMA_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")

WORDS = """the of and whale ship Captain don't I'M you'RE he'd WE'LL they've it\u2019s na\u00efve Stra\u00dfe \u00c5ngstr\u00f6m fa\u00e7ade \u0130stanbul
\u017fecond O\u2019Brien e\u0301te\u0301 A\u030angstro\u0308m n\u0303andu\u0301 \u1ee9ng Vi\u00ea\u0323t Viet\u0302\u0323 q\u0323\u0307 q\u0307\u0323 \u212bngstrom \u2126hm \ufb01ne
\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0419\u043e\u0433\u0443\u0440\u0442 \u0438\u0306\u043e\u0434 \u0401\u043b\u043a\u0430 \u0433\u043e\u0440\u043e\u0434\u0430 \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03bf\u03c2 \u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u1f00\u03c1\u03c7\u03ae
\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0643\u0650\u062a\u064e\u0627\u0628 \u0644\u0651\u064e\u0647 \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0915\u094d\u0937 \u0958\u093c
\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u304b\u3099\u304d\u3099 \u30cf\u309a\u30f3 \u4f60\u597d\u4e16\u754c \u4e2d\u6587\u5206\u8a5e\u6e2c\u8a66 \u6f22\uf900\u5b57 \uc548\ub155\ud558\uc138\uc694
\u110b\u1161\u11ab\u1102\u1167\u11bc \u1112\u1161\u11ab\u1100\u1173\u11af \uac01\u11a8 \u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u0532\u0561\u0580\u0587 \u12a0\u121b\u122d\u129b \u1006\u1014\u103a\u1038 \u0d2e\u0d32\u0d2f\u0d3e\u0d33\u0d02 \u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0f56\u0f7c\u0f51""".split()
EMOJI = ["\U0001F600", "\U0001F44D\U0001F3FD", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F1E9\U0001F1EA", "\u2764\uFE0F\u200D\U0001F525",
         "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "1\uFE0F\u20E3", "\u263A", "\U0001F9D1\U0001F3FF\u200D\U0001F680", "\U0001F926\u200D\u2642\uFE0F"]
SPACES = [" ", "  ", "   ", "        ", "\t", "\t\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\r", " \r\n \r\n", "\u00a0", "\u2028", "\u2029",
          "\u3000", "\u0085", " \u0085 ", "\u2003\u2003", "\u1680", "\u202f", "\u205f", "\v", "\f", "\u180e", " \u00a0 ", "\u200b", "\u200c",
          "\u200d", "\u2060", "\ufeff", "\u00ad", "\x00", "\x01\x02", "\x1c", "\x1f ", "\x7f", "\x80", "\ufffd", "\ue000", "\U0010ffff"]
MARKS = ["!", "...", "?!", " --", "\u2014", "\u201cquote\u201d", "\u00abx\u00bb", "'", "''", "'s", "'T", "'Re", "'LL", "\u2019ll", "(", ")]}", "$", "\u20ac",
         "\u00a3", "+=", "<=>", "#tag", "@user", "a_b", "__init__", "http://example.org/?q=1&r=%20", "\\n", "`code`", "~", "^", "|", "\u00b0", "\u3001",
         "\u3002", "\u0964", "\u061f", "\u05be", "\u2026", "\u2260", "\u2200x", "\U0001D49C", "\u00ac", "\u00bf", "==========", "/*--*/", "};\n", "    return 0;\n"]
NUMBERS = ["0", "7", "42", "1999", "123456", "3.14159", "1,000,000", "12345678901234567890", "\u0663\u0664\u0665", "\u0967\u0968\u0969", "\u0e51\u0e52", "\u00bd",
           "\u00b2\u00b3", "\u2167", "\u2460", "\uff11\uff12\uff13", "\u4e00\u4e8c\u4e09", "\U0001D7D8\U0001D7D9", "x1y2", "0x1F", "1e-5"]
RANGES = [(0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x250, 0x370), (0x370, 0x400), (0x400, 0x530), (0x530, 0x600), (0x600, 0x700),
          (0x900, 0x980), (0xE00, 0xE80), (0x10A0, 0x1100), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2400),
          (0x2500, 0x2800), (0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xF900, 0xFB00), (0xFF00, 0xFFF0), (0x10000, 0x10500),
          (0x1D400, 0x1D800), (0x20000, 0x2A6D7)]


def make_fragments():
    """Words, and runs of random characters that Unicode 3.2 has: all libraries' tables agree on these."""
    r = random.Random(20261121)
    out = []
    for word in WORDS:
        out += [word, " " + word, word + " ", " " + word.upper(), " " + word + ","]
    for group, times in ((EMOJI, 3), (SPACES, 2), (MARKS, 3), (NUMBERS, 3)):
        out += group * times
        out += [" " + x for x in group] + [a + b for a, b in zip(group, r.sample(group, len(group)))]
    for first, end in RANGES:
        known = [chr(c) for c in range(first, end) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
        for _ in range(24):
            out.append(r.choice(["", " "]) + "".join(r.choice(known) for _ in range(r.randint(1, 9))))
    return out


def mixed_text():
    parts = open(FRAGMENTS, "rb").read().split(b"\xff")[:-1]
    lines = open("data/text/moby-dick.txt", "rb").read().split(b"\n")
    state, line, n, out = 1, 0, 0, []
    while n < TEXT_BYTES:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        if state >> 60 == 0:  # one in sixteen: the next line of the novel
            part = lines[line % len(lines)] + b"\n"
            line += 1
        else:
            part = parts[(state >> 32) % len(parts)]
        out.append(part)
        n += len(part)
    return b"".join(out).decode()


def train():
    open(FRAGMENTS, "wb").write(b"".join(x.encode() + b"\xff" for x in make_fragments()))
    text = [mixed_text()]
    bytes_ = pre_tokenizers.ByteLevel.alphabet()

    def byte_level(split):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        t.post_processor = processors.ByteLevel(trim_offsets=False)
        return t

    qwen = byte_level(QWEN_SPLIT)
    qwen.normalizer = normalizers.NFC()
    qwen.train_from_iterator(text, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=bytes_, show_progress=False))
    qwen.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    qwen.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<tool>", normalized=False),
                     AddedToken("caf\u00e9", normalized=True, single_word=True), AddedToken("<strip>", lstrip=True, rstrip=True)])
    qwen.save(FOLDER + "qwen_like.json", pretty=False)

    llama = byte_level(LLAMA_SPLIT)
    llama.train_from_iterator(text, trainers.BpeTrainer(vocab_size=2000, initial_alphabet=bytes_, show_progress=False))
    llama.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    bos = llama.token_to_id("<|begin_of_text|>")
    llama.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)])])
    data = json.loads(llama.to_str())
    data["model"]["ignore_merges"] = True
    words = [w for w in data["model"]["vocab"] if len(w) > 4][::3]  # no longer reached by merging
    data["model"]["merges"] = [m for m in data["model"]["merges"] if "".join(m) not in words and not any(p in words for p in m)]
    json.dump(data, open(FOLDER + "llama_like.json", "w", encoding="utf-8"), ensure_ascii=False, separators=(",", ":"))

    sentencepiece(text)

    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    bert.train_from_iterator(text, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special, limit_alphabet=700,
                                                             show_progress=False))
    bert.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[
        ("[CLS]", bert.token_to_id("[CLS]")), ("[SEP]", bert.token_to_id("[SEP]"))])
    bert.save(FOLDER + "bert_like.json", pretty=False)


def sentencepiece(text):
    """Llama-2's file: one piece a text, marks for spaces by the normalizer, bytes for unknown characters."""
    special = ["<unk>", "<s>", "</s>"]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # while training: no token goes over a border of words
    text = [x.replace("\0", "") for x in text]  # SentencePiece has no token for it, and it would be a key in JSON
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=2000, special_tokens=special + ["<0x%02X>" % b for b in range(256)],
                                                    limit_alphabet=500, show_progress=False))
    data = json.loads(t.to_str())
    data["added_tokens"] = data["added_tokens"][:len(special)]
    data["pre_tokenizer"] = None
    data["decoder"] = sequence("decoders", [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                                            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}])
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    data["post_processor"] = {
        "type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 1}},
                 {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    Tokenizer.from_str(json.dumps(data)).save(FOLDER + "llama2_like.json", pretty=False)


def gpt2():
    t = Tokenizer(models.BPE.from_file("data/gpt2/vocab.json", "data/gpt2/merges.txt"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>"])
    return t


def oracle(path):
    """The tokenizer, set not to look for special tokens in text, and not to truncate or pad."""
    if path.endswith(".json.xz"):
        t = Tokenizer.from_str(lzma.open(path).read().decode())
    else:
        t = gpt2() if path == "data/gpt2" else Tokenizer.from_file(path)
    t.no_truncation()
    t.no_padding()
    return t


def c_string(text):
    return '"%s"' % "".join("\\%03o" % b if not 32 <= b < 127 or chr(b) in '"\\?' else chr(b) for b in text.encode())


def hash_ids(ids):
    return xxhash.xxh3_64_intdigest(struct.pack("<%di" % len(ids), *ids))


CASES = [  # text, second text or None, max_length
    ("Hello world", None, 0), ("", None, 0), ("Call me Ishmael.", "Some years ago - never mind how long precisely", 0),
    ("a<|im_end|>b <|endoftext|>\n<tool_call>x<tool>y<tool_cal", None, 0), ("caf\u00e9 cafe\u0301 xcaf\u00e9 caf\u00e9s (caf\u00e9)", None, 0),
    ("one  <strip> \n two<strip><strip> three", None, 0), ("<|begin_of_text|>again <|end_of_text|>", "b", 0),
    ("the [MASK] of [SEP][CLS] [mask] and [UNK]x", "na\u00efve \u4f60\u597d", 0), ("unaffable whales, don't you'RE it's ! . ,", None, 0),
    ("of the whale and the ship and the sea", None, 5), ("of the whale and the ship and the sea", "a b", 9),
    ("of the whale and the ship and the sea", "the captain of the whale ship and the sea", 9),
    ("a b", "the captain of the whale ship and the sea", 8), ("of the whale", "the captain", 4), ("x" * 120 + " y", None, 0),
    ("<|im_start|>user\nHi!<|im_end|>\n", None, 0), ("<s>[INST] Hi [/INST] \u4f60\u597d</s><s>  x", " y\n", 0),
]
def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(kind, items):
    return {"type": "Sequence", kind: items}


# The parts of qwen_like.json in place of which others stand: every normalizer, every way to split.
COMPONENTS = [(n, "GPT2") for n in (
    None, {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
    sequence("normalizers", [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "NFC"}]),
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True})]
COMPONENTS += [(None, p) for p in (
    "PREFIX", {"type": "BertPreTokenizer"}, {"type": "WhitespaceSplit"}, {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False}, {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Punctuation", "behavior": "MergedWithNext"},
    split(r"\s+", "Removed"), split(r"\s+", "MergedWithPrevious"), split(r"\s", "MergedWithNext"), split(r"\p{L}", "Contiguous"),
    split(r"\w+|\d", "Removed", True), split(r"\w+", "Isolated", True), split(" ", "MergedWithPrevious", False, "String"),
    split(".", "Isolated", False, "String"), split(r"(?i)the|[^\S\n]+", "Isolated"), split(r"\p{Han}+|[\p{Cyrillic}\p{M}]+|\W"),
    split(r"(?=[A-Z])|(?<=[.,])"), split(r"^.|$"), split(r"\x41|[\x{300}-\x{36f}]++|\u00e9"),
    sequence("pretokenizers", [split(r"[\r\n]"), split(r"\p{N}{1,3}(?!\d)", "Isolated"), {"type": "Punctuation", "behavior": "Removed"}]))]


def component(data, normalizer, pre_tokenizer):
    byte_level = {"type": "ByteLevel", "add_prefix_space": pre_tokenizer == "PREFIX", "trim_offsets": False, "use_regex": isinstance(pre_tokenizer, str)}
    data["normalizer"] = normalizer
    data["pre_tokenizer"] = (byte_level if isinstance(pre_tokenizer, str) else
                             sequence("pretokenizers", [pre_tokenizer, byte_level]))
    data["added_tokens"] = []


FILES = ["data/gpt2", "data/qwen3/tokenizer.json.xz"] + [FOLDER + n for n in ("qwen_like.json", "llama_like.json", "bert_like.json", "llama2_like.json")]


# llama2_like.json with other parts, and the keys they stand under.
def variant(**parts):
    data = json.load(open(FOLDER + "llama2_like.json", encoding="utf-8"))
    for key, value in parts.items():
        (data if key in data else data["model"])[key] = value
    return parts, Tokenizer.from_str(json.dumps(data))


def mark(prefix, splits):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": prefix, "split": splits}


def replace(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


TO_MARKS = [{"type": "Prepend", "prepend": "\u2581"}, replace("\u2581", String=" ")]
VARIANTS = [{"normalizer": None, "pre_tokenizer": mark(p, s)} for p in ("always", "first", "never") for s in (False, True)]
VARIANTS += [{"normalizer": None, "pre_tokenizer": mark(p, True), "decoder": mark(p, True)} for p in ("always", "never")]
VARIANTS += [
    {"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": False}, {"ignore_merges": True},
    {"ignore_merges": True, "normalizer": None, "pre_tokenizer": mark("always", True)},
    {"normalizer": replace("\u2581", String=" "), "pre_tokenizer": split(" ", "MergedWithPrevious", False, "String"),  # Gemma
     "decoder": sequence("decoders", [replace(" ", String="\u2581"), {"type": "ByteFallback"}, {"type": "Fuse"}])},
    {"normalizer": sequence("normalizers", [{"type": "Strip", "strip_left": True, "strip_right": True}] + TO_MARKS)},
    {"normalizer": sequence("normalizers", [replace("\u2581\u2581", Regex=r" {2,}|\t"), {"type": "NFKC"}] + TO_MARKS)},
    {"normalizer": sequence("normalizers", [replace("-", Regex="b*")] + TO_MARKS)},
    {"normalizer": None, "pre_tokenizer": sequence("pretokenizers", [{"type": "Digits", "individual_digits": True}, mark("first", True)])},
    {"normalizer": None, "pre_tokenizer": sequence("pretokenizers", [{"type": "WhitespaceSplit"}, mark("always", True)])}]


def write_variants(head):
    print("/* llama2_like.json with other parts, over the beginning of the text, <s> and </s> found in it */")
    print("static const struct { const char *parts; int64_t n_ids; uint64_t hash, decoded; } golden_variants[] = {")
    for parts in VARIANTS:
        parts, t = variant(**parts)
        ids = t.encode(head, add_special_tokens=False).ids
        decoded = xxhash.xxh3_64_intdigest(t.decode(ids, skip_special_tokens=False).encode())
        print("    {%s, %d, 0x%016xu, 0x%016xu}," % (c_string(json.dumps(parts)), len(ids), hash_ids(ids), decoded))
    print("};")


def write():
    text = mixed_text()
    print("/* tokenizers.h - written by make_tokenizer_golden.py; do not edit. */\n/* clang-format off */")
    print("enum { golden_text_bytes = %d, golden_block_ids = %d };" % (len(text.encode()), BLOCK_IDS))
    print("static const uint64_t golden_text_hash = 0x%016xu;" % xxhash.xxh3_64_intdigest(text.encode()))
    print("static const struct { const char *path; int64_t n_ids; uint64_t hash, decoded; int n_blocks; uint64_t blocks[64]; } "
          "golden_tokenizers[] = {")
    for path in FILES + sys.argv[1:]:
        t = oracle(path)
        t.encode_special_tokens = True
        ids = t.encode(text, add_special_tokens=False).ids
        blocks = [hash_ids(ids[i:i + BLOCK_IDS]) for i in range(0, len(ids), BLOCK_IDS)]
        decoded = xxhash.xxh3_64_intdigest(t.decode(ids, skip_special_tokens=False).encode())
        print('    {"%s", %d, 0x%016xu, 0x%016xu, %d, {%s}},' % (path, len(ids), hash_ids(ids), decoded, len(blocks),
                                                         ", ".join("0x%016xu" % b for b in blocks)))
    print("};")
    head = text[:60000]
    print("/* qwen_like.json without added tokens and with other parts, over the beginning of the text */")
    print("enum { golden_component_bytes = %d };" % len(head.encode()))
    print("static const struct { const char *normalizer, *pre_tokenizer; int64_t n_ids; uint64_t hash; } golden_components[] = {")
    for normalizer, pre_tokenizer in COMPONENTS:
        data = json.load(open(FOLDER + "qwen_like.json", encoding="utf-8"))
        component(data, normalizer, pre_tokenizer)
        ids = Tokenizer.from_str(json.dumps(data)).encode(head, add_special_tokens=False).ids
        print("    {%s, %s, %d, 0x%016xu}," % (c_string(json.dumps(data["normalizer"])), c_string(json.dumps(data["pre_tokenizer"])),
                                          len(ids), hash_ids(ids)))
    print("};")
    write_variants("A<s>b </s> c<unk>" + head)
    print("/* added tokens found in the text, special tokens around it */")
    print("static const struct { int tokenizer; const char *a, *b; int64_t max_length; int n; int32_t ids[160], types[160]; "
          "const char *plain; } golden_cases[] = {")
    for i, path in enumerate(FILES + sys.argv[1:]):
        t = oracle(path)
        for a, b, max_length in CASES:
            if max_length:
                t.enable_truncation(max_length)
            else:
                t.no_truncation()
            e = t.encode(a, b)
            # ByteLevel takes the e-acute of an added token for a byte, which then is no UTF-8; here it stays a letter
            plain = t.decode(e.ids).replace("\ufffd", "\u00e9")
            print("    {%d, %s, %s, %d, %d, {%s}, {%s}, %s}," % (
                i, c_string(a), c_string(b) if b is not None else "NULL", max_length, len(e.ids), ", ".join(map(str, e.ids)) or 0,
                ", ".join(map(str, e.type_ids)) or 0, c_string(plain)))
    print("};")


if "--train" in sys.argv:
    sys.argv.remove("--train")
    train()
sys.stdout = open("test/golden/tokenizers.h", "w")
write()
