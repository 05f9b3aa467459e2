"""Promises of training: equal runs, a learned end token, no silent truncation."""

import random

import pytest
import torch
from unit.training.recipes import train
from unit.training.tiny_data import WORDS, files_of, write_recipe

import regard
from regard.tokenization.tokenizer_loader import load_tokenizer

SMALL = {"training.steps": 6, "training.evaluate_every": 3, "training.save_every": 3}


def test_two_runs_of_one_recipe_are_one_run(tmp_path):
    recipe = write_recipe(tmp_path)
    for name in ("one", "two"):
        train(recipe, SMALL, output=tmp_path / name)
        torch.rand(3)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    train(recipe, {**SMALL, "seed": 2}, output=tmp_path / "three")
    one, three = files_of(tmp_path / "one"), files_of(tmp_path / "three")
    assert one["best/model.safetensors"] != three["best/model.safetensors"]


@torch.no_grad()
def greedy(network, source, start, end, limit=20):
    """Greedy decoding without cache."""
    output_ids = [start]
    while output_ids[-1] != end and len(output_ids) < limit:
        logits = network(torch.tensor([source]), torch.tensor([output_ids])).logits
        output_ids.append(int(logits[0, -1].argmax()))
    return output_ids[1:]


def test_the_end_is_learnt(tmp_path):
    """A network that memorized a few sentences ends them exactly where they end."""
    recipe = write_recipe(tmp_path)
    draw = random.Random(3)
    lines = [[draw.choice(WORDS) for _ in range(length)] for length in (1, 2, 3, 4, 5, 6) * 2]
    for name in ("train", "valid"):
        (tmp_path / f"{name}.a").write_text("".join(" ".join(line) + "\n" for line in lines))
        (tmp_path / f"{name}.b").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    change = {
        "network.dropout": 0.0,
        "network.model_dim": 32,
        "training.steps": 110,
        "training.gradient_accumulation_steps": 1,
    }
    change |= {"training.evaluate_every": 110, "training.save_every": 110, "training.schedule.warmup_steps": 20}
    best = train(recipe, change, output=tmp_path / "run")
    network, tokenizer = regard.load(best).network.eval(), load_tokenizer(best)
    start, end = tokenizer.special_ids.bos, tokenizer.special_ids.eos
    assert tokenizer.special_ids.pad not in (None, end)
    for line in lines:
        output_ids = greedy(network, tokenizer.encode(" ".join(line)).ids, start, end)
        assert output_ids[-1] == end
        assert tokenizer.decode(output_ids) == " ".join(reversed(line))


@pytest.mark.parametrize("length", [4, 6])
def test_nothing_is_cut_in_silence(tmp_path, capsys, length):
    recipe = write_recipe(tmp_path)
    lines = (tmp_path / "train.a").read_text().splitlines()
    too_long = [len(line.split()) + 1 - length for line in lines if len(line.split()) + 1 > length]
    assert too_long
    train(recipe, {**SMALL, "data.max_length": length, "training.steps": 1}, output=tmp_path / "run")
    said = capsys.readouterr().err
    assert f"{2 * len(too_long)} examples exceeded max_length: {2 * sum(too_long)} tokens truncated" in said
    assert said.count("exceeded max_length") == 2  # training data and validation data
    assert (tmp_path / "run" / "log.txt").read_text().count("tokens truncated") == 2


def test_long_rows_can_be_refused(tmp_path):
    recipe = write_recipe(tmp_path)
    with pytest.raises(ValueError, match=r"train\.a, line \d+: \d+ tokens exceed max_length=4"):
        train(recipe, {"data.max_length": 4, "data.too_long": "error"}, output=tmp_path / "run")


def test_the_recipe_of_a_run_makes_the_run_again(tmp_path):
    """recipe.toml in the run directory is complete, wherever it is copied to."""
    recipe = write_recipe(tmp_path)
    train(recipe, SMALL, output=tmp_path / "one")
    copied = tmp_path / "elsewhere" / "again.toml"
    copied.parent.mkdir()
    copied.write_text((tmp_path / "one" / "recipe.toml").read_text())
    train(copied, output=tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
