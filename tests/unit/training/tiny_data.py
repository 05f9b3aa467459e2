"""Small data, recipes and networks for the tests of training."""

import random
from pathlib import Path

import numpy as np
import torch

from regard.data.batches import Batch, PackedColumn
from regard.transformer.batch_layout import BatchLayout

WORDS = ["red", "blue", "green", "dog", "cat", "bird", "runs", "sleeps", "sings", "far", "near", "now"]

RECIPE = """
task = "translate"

[data]
train = ["train.a", "train.b"]
valid = ["valid.a", "valid.b"]

[tokenizer]
kind = "words"
size = 40

[network]
family = "transformer"
layers = [1, 1]
model_dim = 16
heads = 2
inner_dim = 24
dropout = 0.2

[training]
batch_tokens = 96
steps = 24
gradient_accumulation_steps = 2
optimizer = { kind = "adamw", lr = 5e-3, weight_decay = 0.01 }
schedule = { kind = "inverse_sqrt", warmup_steps = 10 }
log_every = 5
evaluate_every = 8
save_every = 4
"""


def write_pairs(folder, name, count, seed):
    """Write sentences, and the same sentences with their words reversed."""
    draw = random.Random(seed)
    lines = [[draw.choice(WORDS) for _ in range(draw.randint(1, 7))] for _ in range(count)]
    (folder / f"{name}.a").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / f"{name}.b").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))


def write_recipe(folder: Path, text: str = RECIPE) -> Path:
    """Write a recipe and its data to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder, "train", 120, seed=1)
    write_pairs(folder, "valid", 20, seed=2)
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


def ids(*rows):
    """A column of a batch."""
    return PackedColumn(
        torch.tensor([token for row in rows for token in row]), BatchLayout.of([len(row) for row in rows])
    )


def batch(epoch=0, step=0, **columns):
    """A batch of these columns."""
    rows = next(iter(columns.values())).layout.batch_size
    return Batch(columns, np.arange(rows), epoch, step)


def random_rows(lengths, vocabulary, seed=0, low=5):
    """Sequences of random tokens."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randint(low, vocabulary, (length,), generator=draw).tolist() for length in lengths]


def files_of(run):
    """Return all files of a run, except log and caches."""
    kept = [path for path in run.rglob("*") if path.is_file() and "cache" not in path.parts and path.name != "log.txt"]
    return {str(path.relative_to(run)): path.read_bytes() for path in kept}
