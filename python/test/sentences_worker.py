"""A rank of test_sentence_transformers."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from test_sentence_transformers import train  # noqa: E402

from patrickstar.integrations import SentenceTransformerTrainer  # noqa: E402

train(SentenceTransformerTrainer, sys.argv[1], "ours")
