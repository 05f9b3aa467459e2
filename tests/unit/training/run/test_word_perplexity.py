"""Word-level perplexity: the sum of losses over the number of predicted words."""

import math
import random

import pytest
import torch
from unit.training.recipes import train
from unit.training.tiny_data import WORDS

import regard
from regard.training.run.run_dir import RunDir, read_metrics

RECIPE = """
task = "generate"
[data]
train = ["train.txt"]
valid = ["valid.txt"]
unit = "{unit}"
max_length = 400
[tokenizer]
kind = "{kind}"
size = 300
[network]
family = "llama"
layers = 1
model_dim = 16
heads = 2
inner_dim = 16
max_length = 400
[training]
batch_tokens = 512
steps = 2
best_metric = "word_perplexity"
"""
VALID = " red dog\n\n = cat sings =\nnow far\n"


def measured(folder, unit, kind):
    draw = random.Random(1)
    lines = [" ".join(draw.choice([*WORDS, "="]) for _ in range(6)) for _ in range(40)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n")
    (folder / "valid.txt").write_text(VALID)
    (folder / "recipe.toml").write_text(RECIPE.format(unit=unit, kind=kind))
    model = regard.load(train(folder / "recipe.toml", output=folder / "run"))
    line = read_metrics(RunDir(folder / "run").metrics)[-1]
    return model.network.eval(), model.tokenizer, line


def summed_loss(network, tokens):
    """The summed loss of all tokens except the first."""
    with torch.no_grad():
        scores = network(torch.tensor([tokens])).logits[0, :-1].double()
    return float(torch.nn.functional.cross_entropy(scores, torch.tensor(tokens[1:]), reduction="sum"))


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_of_a_file_that_is_one_document(tmp_path, kind):
    """All words and all four ends of lines, except the first word: the same number for any tokenizer."""
    network, tokenizer, line = measured(tmp_path, "file", kind)
    tokens = [*tokenizer.encode(VALID[:-1], add_special_tokens=False).ids, tokenizer.special_ids.eos]
    assert line["valid_word_perplexity"] == pytest.approx(
        math.exp(summed_loss(network, tokens) / (8 + 4 - 1)), rel=1e-5
    )
    assert line["valid_perplexity"] == pytest.approx(
        math.exp(summed_loss(network, tokens) / (len(tokens) - 1)), rel=1e-5
    )


def test_of_lines_that_are_documents(tmp_path):
    """Empty lines are no documents, and the first word of each document is not predicted."""
    network, tokenizer, line = measured(tmp_path, "line", "characters")
    rows = [text for text in VALID.splitlines() if text]
    ids = [[*tokenizer.encode(row, add_special_tokens=False).ids, tokenizer.special_ids.eos] for row in rows]
    expected = math.exp(sum(summed_loss(network, row) for row in ids) / (8 + 3 - 3))
    assert line["valid_word_perplexity"] == pytest.approx(expected, rel=1e-5)


def test_ends_of_lines_that_the_tokenizer_does_not_keep_are_not_counted(tmp_path):
    network, tokenizer, line = measured(tmp_path, "file", "words")
    tokens = [*tokenizer.encode(VALID, add_special_tokens=False).ids, tokenizer.special_ids.eos]
    assert len(tokens) == 8 + 1
    assert line["valid_word_perplexity"] == pytest.approx(math.exp(summed_loss(network, tokens) / 8), rel=1e-5)
