#!/usr/bin/env python3
"""Write test/golden/tokens.h: what Hugging Face's `tokenizers` makes of difficult strings and of data/text.

usage: pip install tokenizers; python3 test/golden/make_tokens.py > test/golden/tokens.h   (from the repository root)
"""
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

STRINGS = [
    "", "a", " ", "\n", "Hello world", " Hello", "Hello, world!", "hello  world", "a   b", "trailing   ", "   leading",
    "tab\tand\nnewline\r\n\r\nend", "\n\n\n", " \n \n ", "I'm you're he'd we'll they've it's don't 's'T'RE", "''s  'll",
    "1234567890 12 3.14159 1,000,000", "x1y2z3", "snake_case camelCase __init__", "a+b=c; if (x<=y) { return 0; }",
    "http://example.org/?q=1&r=%20", "na\u00efve caf\u00e9 \u00fcber stra\u00dfe", "e\u0301 combining", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u0645\u0631\u062d\u0628\u0627", "\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467 family", "flag \U0001F1E9\U0001F1EA",
    "\u00a0no-break\u00a0space", "\u2003em\u2003\u2003space", "\u1680\u2028\u2029\u3000x", "\u0085next line", "a \u0085b", " \u180ex", "\u180esep \u180e", "\u200bzero",
    "\u00bd\u00b2\u2167\u0663", "\x00\x01\x1f\x7f", "\x1c\x1d a", "\ufeffbom", "<|endoftext|>", "a<|endoftext|>b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Antidisestablishmentarianism", " antidisestablishmentarianism supercalifragilisticexpialidocious", "\U0010ffff\ue000",
    "----------------------------------------------------------------", "=\u2014=\u2018\u201cquote\u201d\u2019",
]
TEXTS = ["data/text/moby-dick.txt"]


def fnv1a(ids):
    """64-bit FNV-1a over the ids as little-endian 32-bit words, a byte at a time."""
    h = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


tokenizer = Tokenizer(BPE.from_file("data/gpt2/vocab.json", "data/gpt2/merges.txt"))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


print("/* tokens.h - written by make_tokens.py; do not edit. */")
print("/* clang-format off */")
print("static const struct { const char *text; int n_bytes, n_ids; int32_t ids[64]; } golden_strings[] = {")
for text in STRINGS:
    ids, data = encode(text), text.encode()
    literal = "".join("\\%03o" % b if not 32 <= b < 127 or chr(b) in '"\\?' else chr(b) for b in data)
    print('    {"%s", %d, %d, {%s}},' % (literal, len(data), len(ids), ", ".join(map(str, ids)) or "0"))
print("};")
print("static const struct { const char *path; int64_t n_ids; uint64_t fnv1a; } golden_texts[] = {")
for path in TEXTS:
    ids = encode(open(path, encoding="utf-8", newline="").read())
    print('    {"%s", %d, 0x%016xu},' % (path, len(ids), fnv1a(ids)))
print("};")
vocabulary = [tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size())]
kept = sum(encode(text) == [i] for i, text in enumerate(vocabulary))
print("/* tokens that decode to text which encodes to the token itself */")
print("enum { golden_n_fixed_tokens = %d };" % kept)
