"""Fine-tunes a classifier of Hugging Face's transformers in less memory than its model data needs, saves it, and
resumes from the files.

usage: python3 examples/pytorch_finetune.py [--steps N] [--device BYTES] [--host BYTES] [--folder FOLDER]
       torchrun --nproc_per_node 2 examples/pytorch_finetune.py

The model is a small BERT with random weights, so that nothing is downloaded; what it learns is whether a sequence has a
certain token. With a checkpoint of your own: BertForSequenceClassification.from_pretrained(FOLDER) in model_func.
"""
import argparse
import os
import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification

from patrickstar.runtime import initialize_engine

VOCABULARY, LENGTH, BATCH, TOKEN = 2000, 32, 8, 7


def model_func():
    """Each parameter goes straight into chunks: the model is never in memory as a whole."""
    return BertForSequenceClassification(BertConfig(
        vocab_size=VOCABULARY, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2))


def batch_of(step, rank, device):
    """Half of the sequences have TOKEN somewhere. On the engine's device, the same values everywhere."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(TOKEN + 1, VOCABULARY, (BATCH, LENGTH), generator=generator)
    labels = torch.arange(BATCH) % 2
    places = torch.randint(0, LENGTH, (BATCH, 4), generator=generator)
    for i in range(BATCH):
        if labels[i]:
            tokens[i, places[i]] = TOKEN
    return {"input_ids": tokens.to(device), "labels": labels.to(device)}


def begin(given):
    config = {
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": given.lr, "weight_decay": 0.01}},
        "gradient_clipping": 1.0,
        "memory": {"device": given.device, "host": given.host, "disk": "1GB", "disk_path": given.folder},
    }
    torch.manual_seed(0)
    return initialize_engine(model_func=model_func, config=config)


def train(model, optimizer, first, last):
    """The loss of each step from `first` on."""
    rank, losses = model.ranks.rank, []
    model.train()
    for step in range(first, last):
        optimizer.zero_grad()
        loss = model(**batch_of(step, rank, model.device)).loss
        model.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        if rank == 0:
            print("step %3d  loss %.4f" % (step + 1, losses[-1]), flush=True)
    return losses


@torch.no_grad()
def evaluate(model):
    """The share of right answers to texts that it has not seen."""
    model.eval()
    right = []
    for step in range(10 ** 6, 10 ** 6 + 8):
        batch = batch_of(step, model.ranks.rank, model.device)
        right.append((model(**batch).logits.argmax(-1) == batch["labels"]).float().mean().item())
    return sum(right) / len(right)


def save(what, file, rank):
    """All ranks gather, one writes."""
    state = what.state_dict()
    if rank == 0:
        torch.save(state, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--device", default="120MB", help="memory of the device: chunks, and PyTorch's activations")
    parser.add_argument("--host", default="0", help="memory for chunks on the host")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where chunks on disk and saved files go")
    given = parser.parse_args()
    model_file = os.path.join(given.folder, "finetuned.pt")
    optimizer_file = os.path.join(given.folder, "finetuned-optimizer.pt")

    model, optimizer = begin(given)
    rank = model.ranks.rank
    train(model, optimizer, 0, given.steps)
    right = evaluate(model)
    save(model, model_file, rank)
    save(optimizer, optimizer_file, rank)
    if rank == 0:
        info = model.client.get_info()
        print("right: %.1f %%" % (100 * right))
        print("model data %.1f MB; device at most %.1f MB, disk %.1f MB" % tuple(
            n / 1e6 for n in (info.model_data_bytes, info.peak_bytes[0], info.peak_bytes[2])), flush=True)
    went_on = train(model, optimizer, given.steps, given.steps + 3)
    model.close()

    # Another run resumes from these files.
    model, optimizer = begin(given)
    model.load_state_dict(torch.load(model_file))
    optimizer.load_state_dict(torch.load(optimizer_file))
    again = train(model, optimizer, given.steps, given.steps + 3)
    model.close()
    if again != went_on:
        print("the run that was loaded went another way: %s, not %s" % (again, went_on))
    return 0 if again == went_on else 1


if __name__ == "__main__":
    sys.exit(main())
