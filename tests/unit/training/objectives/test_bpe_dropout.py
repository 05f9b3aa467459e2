"""Tokens taken apart at random: the text stays, the tokens vary, and only while training."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization.sample_texts import SPECIAL
from unit.tokenization.vocabularies import corpus
from unit.training.tiny_data import RECIPE, batch, files_of, ids, random_rows, write_recipe

from regard.data.batches import Ids
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.tokenization.algorithms import ByteBPE, Characters, Unigram, WordPiece, Words
from regard.tokenization.tokenizer_trainer import train as learn
from regard.training.objectives import factory
from regard.training.objectives.bpe_dropout import NONE, Split, split, table
from regard.training.objectives.causal import Causal
from regard.training.objectives.distillation import Distill
from regard.training.objectives.factory import objective_of, parts_of
from regard.training.objectives.objective import Loss
from regard.training.objectives.rdrop_objective import Agree
from regard.training.objectives.translate import Translate
from regard.training.recipe import objective_section
from regard.training.recipe.network_factory import longest
from regard.training.recipe.schema import RecipeError, read
from regard.training.run.loop import Loop
from regard.training.run.progress import Lines
from regard.training.run.run import assemble, train
from regard.training.run.run_dir import Folder, read_metrics
from regard.transformer.batch_layout import Rows
from regard.transformer.network import build

BYTES = learn(ByteBPE(size=500), corpus(600))
PARTS = parts_of(BYTES)
TREE = table({7: (5, 6), 5: (1, 2), 6: (3, 4), 8: (7, 5)}, 10)
"""8 is 7 5, 7 is 5 6, 5 is 1 2, and 6 is 3 4; 0 to 4 and 9 have no parts."""
WHOLE = {0: [0], 1: [1], 2: [2], 3: [3], 4: [4], 5: [1, 2], 6: [3, 4], 7: [1, 2, 3, 4], 8: [1, 2, 3, 4, 1, 2], 9: [9]}

TEXTS = st.lists(
    st.text(max_size=30) | st.sampled_from(corpus(30)) | st.lists(st.sampled_from([*SPECIAL, "a", "é"])).map("".join),
    min_size=1,
    max_size=6,
)
ROWS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), min_size=1, max_size=8)
CHANCES = st.sampled_from([0.05, 0.3, 0.7, 0.95, 1.0])
SEEDS = st.integers(0, 2**31)


def rows_of(column):
    return [row.tolist() for row in column.tokens.split(column.rows.lengths)]


def letters(row):
    """Tokens taken apart as far as it goes."""
    return [letter for token in row for letter in WHOLE[token]]


def seeded(seed, column, parts, chance, limit=None):
    torch.manual_seed(seed)
    return split(column, parts, chance, limit)


def near(share, expected, count):
    """Within five standard deviations of what chance gives."""
    return abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / count)


# -- the tokens


@given(texts=TEXTS, chance=CHANCES, seed=SEEDS)
@settings(max_examples=200)
def test_the_text_stays_and_rows_keep_their_number_order_and_end(texts, chance, seed):
    rows = BYTES.ids_of(texts)
    found = rows_of(seeded(seed, ids(*rows), PARTS, chance))
    assert BYTES.decode_many(found, keep_special=True) == BYTES.decode_many(rows, keep_special=True)
    assert BYTES.decode_many(found) == texts
    assert all(row[-1] == BYTES.special.end and row.count(BYTES.special.end) == 1 for row in found)
    if chance == 1:
        assert [len(row) for row in found] == [len(text.encode()) + 1 for text in texts]  # a token for each byte


@given(rows=ROWS, chance=CHANCES, seed=SEEDS)
@settings(max_examples=200)
def test_what_a_token_becomes_are_its_parts(rows, chance, seed):
    """Whatever was taken apart: as far as it goes, both come to the same."""
    found = rows_of(seeded(seed, ids(*rows), TREE, chance))
    assert [letters(row) for row in found] == [letters(row) for row in rows]
    if chance == 1:
        assert all(TREE[token, 0] == NONE for row in found for token in row)


@given(rows=ROWS, seed=SEEDS)
def test_without_a_chance_nothing_changes(rows, seed):
    found = seeded(seed, ids(*rows), TREE, 0.0)
    assert rows_of(found) == rows
    assert found.rows == ids(*rows).rows


@given(rows=ROWS, chance=CHANCES, seed=SEEDS)
def test_where_rows_begin_does_not_matter(rows, chance, seed):
    """Nothing is drawn by row: the same tokens in one long row become the same tokens."""
    together = ids([token for row in rows for token in row])
    found = seeded(seed, ids(*rows), TREE, chance)
    assert found.tokens.tolist() == seeded(seed, together, TREE, chance).tokens.tolist()


@given(rows=ROWS, chance=CHANCES, seed=SEEDS, limit=st.integers(1, 14))
@settings(max_examples=200)
def test_a_row_that_would_grow_too_long_stays_whole(rows, chance, seed, limit):
    grown = rows_of(seeded(seed, ids(*rows), TREE, chance))
    found = rows_of(seeded(seed, ids(*rows), TREE, chance, limit))
    assert found == [row if len(more) > limit else more for row, more in zip(rows, grown, strict=True)]


def test_the_column_that_was_given_stays_as_it_was():
    column = ids([8, 7, 9], [6])
    split(column, TREE, 1.0)
    assert rows_of(column) == [[8, 7, 9], [6]]
    assert rows_of(split(column, TREE, 1.0)) == [[1, 2, 3, 4, 1, 2, 1, 2, 3, 4, 9], [3, 4]]


def test_rows_that_start_later_still_do():
    column = Ids(torch.tensor([5, 6, 9]), Rows.of((2, 1), starts=(4, 0)))
    assert split(column, TREE, 1.0).rows == Rows.of((4, 1), starts=(4, 0))


# -- how often


@pytest.mark.parametrize("chance", [0.1, 0.5])
def test_each_token_is_taken_apart_with_the_chance_and_each_part_again(chance):
    """Each is asked once: that others are still taken apart in later rounds takes no more of them apart."""
    count = 40_000
    found = seeded(1, ids(*[[7]] * count), TREE, chance)
    rows = [tuple(row) for row in rows_of(found)]
    shares = {row: rows.count(row) / count for row in {*rows}}
    both, one = chance * chance**2, chance * chance * (1 - chance)
    expected = {
        (7,): 1 - chance,
        (5, 6): chance * (1 - chance) ** 2,
        (1, 2, 6): one,
        (5, 3, 4): one,
        (1, 2, 3, 4): both,
    }
    assert shares.keys() == expected.keys()
    for row, share in expected.items():
        assert near(shares[row], share, count), row


def test_the_share_of_a_real_vocabulary():
    """Of its tokens that have parts; the others stay."""
    rows = BYTES.ids_of(corpus(2000, seed=5))
    column = ids(*rows)
    parted = int((PARTS[column.tokens, 0] != NONE).sum())
    only_once = PARTS.clone()
    only_once[PARTS.unique()[1:]] = NONE  # tokens that are no part of another, so that there is one round
    splittable = int((only_once[column.tokens, 0] != NONE).sum())
    assert splittable > 1000
    once = seeded(3, column, only_once, 0.1)
    assert near((len(once.tokens) - len(column.tokens)) / splittable, 0.1, splittable)
    grown = seeded(3, column, PARTS, 0.1)
    assert 0.1 * parted < len(grown.tokens) - len(column.tokens) < 0.16 * parted


def test_neighbours_and_rows_are_drawn_alone():
    count = 20_000
    rows = rows_of(seeded(2, ids(*[[5, 6]] * count), TREE, 0.3))
    assert near(rows.count([1, 2, 3, 4]) / count, 0.09, count)
    apart = [len(row) > 2 for row in rows]
    following = sum(one and other for one, other in pairwise(apart)) / (count - 1)
    assert near(following, (1 - 0.7**2) ** 2, count - 1)


def test_the_same_seed_takes_the_same_apart():
    column = ids(*random_rows((40, 30, 20), 10, low=0))
    one, same, other = (seeded(seed, column, TREE, 0.4) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, same.tokens)
    assert one.rows == same.rows
    assert rows_of(one) != rows_of(other)


# -- the objective


class Seen:
    """An objective that keeps what it was asked."""

    def __init__(self):
        self.batches = []

    def loss(self, network, batch):
        self.batches.append(batch)
        return Loss(torch.tensor(0.0), 1)


def gpt(dropout=0.0, layers=1):
    sizes = dict(vocab_size=10, n_embd=8, n_layer=layers, n_head=2, n_positions=64)
    rates = dict(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    return build(FAMILIES["gpt2"].read({**sizes, **rates}, "GPT2LMHeadModel")[0])


def test_only_while_training_and_only_the_columns_that_are_named():
    seen, network = Seen(), gpt()
    whole = batch(epoch=3, step=4, source=ids([8, 9], [5]), target=ids([7, 6], [7]), other=ids([7, 7], [7]))
    objective = Split(objective=seen, parts={"source": TREE, "target": table({7: (0, 4)}, 8)}, chance=1.0)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    objective.loss(network.eval(), whole)
    assert seen.batches.pop() is whole
    assert torch.equal(torch.get_rng_state(), before)
    objective.loss(network.train(), whole)
    (found,) = seen.batches
    assert rows_of(found["source"]) == [[1, 2, 3, 4, 1, 2, 9], [1, 2]]
    assert rows_of(found["target"]) == [[0, 4, 6], [0, 4]]  # by a vocabulary of its own
    assert found["other"] is whole["other"]
    assert (found.epoch, found.step) == (3, 4)
    assert found.indices is whole.indices


def test_the_loss_is_that_of_the_split_batch():
    network = build(transformer_2017(vocabulary=10, layers=(1, 1), model_dim=8, heads=2, dropout=0.0)).double()
    inner = Translate(start=0, smoothing=0.1)
    given = batch(source=ids(*random_rows((9, 7), 10)), target=ids(*random_rows((6, 8), 10, seed=1)))
    objective = Split(objective=inner, parts={"source": TREE, "target": TREE}, chance=0.5)
    torch.manual_seed(5)
    found = objective.loss(network.train(), given)
    torch.manual_seed(5)
    source, target = (split(given[name], TREE, 0.5) for name in ("source", "target"))
    assert len(source.tokens) > 16
    assert len(target.tokens) > 14
    expected = inner.loss(network, batch(source=source, target=target))
    assert (found.sum, found.count) == (expected.sum, len(target.tokens))
    evaluated, plain = (one.loss(network.eval(), given) for one in (objective, inner))
    assert (evaluated.sum, evaluated.count, evaluated.right) == (plain.sum, plain.count, plain.right)


@pytest.mark.parametrize("kind", ["agree", "distill"])
def test_two_readings_and_a_teacher_are_of_the_same_tokens(kind):
    network = gpt(dropout=0.3)
    inner = Agree(objective=Causal()) if kind == "agree" else Distill(objective=Causal(), teacher=gpt(layers=2))
    given = batch(tokens=ids([8, 7, 9], [5, 6, 7, 8]))
    torch.manual_seed(6)
    found = Split(objective=inner, parts={"tokens": TREE}, chance=0.5).loss(network.train(), given)
    torch.manual_seed(6)
    parted = split(given["tokens"], TREE, 0.5)
    expected = inner.loss(network, batch(tokens=parted))
    assert found.count == expected.count == len(parted.tokens) - 2 > 5
    assert torch.equal(found.sum, expected.sum)


# -- the recipe


def test_an_objective_is_put_together_from_its_options():
    other = learn(ByteBPE(size=300), ["hier sind andere wörter, und noch mehr andere wörter"] * 3)
    both = BYTES.with_target(other)
    found = objective_of(objective_section.Translate(splitting=0.2, agreement=3.0), both, start=1, room=30)
    assert isinstance(found, Split)
    assert (found.chance, found.longest) == (0.2, 30)
    assert isinstance(found.objective, Agree)
    assert isinstance(found.objective.objective, Translate)
    assert torch.equal(found.parts["source"], PARTS)
    assert torch.equal(found.parts["target"], parts_of(other))
    assert len(PARTS) != len(found.parts["target"])
    causal = objective_of(objective_section.Causal(splitting=0.1), BYTES, start=1)
    assert list(causal.parts) == ["tokens"]
    assert causal.longest is None
    for design in (objective_section.Translate(), objective_section.Causal(splitting=0.0)):
        assert isinstance(objective_of(design, BYTES, start=1), Translate | Causal)


@pytest.mark.parametrize(("room", "fitting"), [(None, 64), (100, 64), (50, 50)])
def test_a_row_must_fit_the_teacher_too(monkeypatch, room, fitting):
    teacher = gpt()
    assert longest(teacher.config) == 64
    monkeypatch.setattr(factory, "load", lambda folder, dtype: (teacher, None))
    monkeypatch.setattr(factory, "_check_teacher", lambda *given: None)
    design = objective_section.Causal(splitting=0.1, teacher=objective_section.Teacher(load="there"))
    found = objective_of(design, BYTES, start=1, room=room)
    assert isinstance(found.objective, Distill)
    assert found.longest == fitting


@pytest.mark.parametrize("kind", [WordPiece(size=400), Unigram(size=300), Words(size=200), Characters(size=300)])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_tokenizer_that_has_merged_nothing_is_refused(kind, side):
    other = learn(kind, corpus(200))
    tokenizer = other.with_target(BYTES) if side == "source" else BYTES.with_target(other)
    with pytest.raises(ValueError, match="has merged nothing: use one with kind = 'bpe', or leave splitting out"):
        objective_of(objective_section.Translate(splitting=0.1), tokenizer, start=1)
    objective_of(objective_section.Translate(), tokenizer, start=1)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "words", "characters"])
def test_a_recipe_whose_tokenizer_merges_nothing_is_refused_before_anything_is_done(tmp_path, kind):
    recipe = write_recipe(tmp_path)
    change = {"objective.splitting": 0.1, "tokenizer.kind": kind}
    said = rf"tokenizer\.kind is '{kind}', which merges nothing: use kind = 'bpe', or leave splitting out"
    with pytest.raises(RecipeError, match=said):
        train(recipe, change, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    read(recipe, {**change, "objective.splitting": 0.0})
    read(recipe, {**change, "tokenizer.kind": "bpe"})


def test_a_loaded_tokenizer_that_has_merged_nothing_is_refused_before_the_data_is_read(tmp_path):
    learn(Words(size=40), corpus(20)).save(tmp_path / "words")
    recipe = write_recipe(tmp_path)
    change = {"objective.splitting": 0.1, "tokenizer": {"load": str(tmp_path / "words")}}
    with pytest.raises(ValueError, match="has merged nothing"):
        train(recipe, change, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "cache" / "train").exists()


@pytest.mark.parametrize("value", [1, -0.1])
def test_a_chance_is_at_least_0_and_less_than_1(tmp_path, value):
    with pytest.raises(RecipeError, match=r"objective\.splitting: expected (greater|less) than"):
        read(write_recipe(tmp_path), {"objective.splitting": value})


def test_objectives_that_do_not_write_have_no_such_option():
    every = {kind: "splitting" in kind.model_fields for kind in objective_section.AnyOptions.__args__}
    assert {kind.__name__ for kind, has in every.items() if has} == {"Translate", "Causal"}
    assert objective_section.Translate().splitting == objective_section.Causal().splitting == 0


SPLITTING = RECIPE.replace('kind = "words"\nsize = 40', 'kind = "bpe"\nsize = 300') + "[objective]\nsplitting = 0.3\n"
SHORT = {"training.steps": 8, "training.save_every": 3, "training.evaluate_every": 4}


def test_a_run_that_splits_goes_on_bit_for_bit(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, SPLITTING)
    train(recipe, SHORT, folder=tmp_path / "whole")
    update = Loop.update

    def dying(self, stream):
        if self.progress.step == 5:
            raise RuntimeError("the power is gone")
        return update(self, stream)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "update", dying)
        with pytest.raises(RuntimeError, match="power"):
            train(recipe, SHORT, folder=tmp_path / "stopped")
    train(recipe, SHORT, folder=tmp_path / "stopped", resume=True)
    expected = files_of(tmp_path / "whole")
    assert files_of(tmp_path / "stopped") == expected
    train(recipe, {**SHORT, "objective.splitting": 0.0}, folder=tmp_path / "never")
    assert files_of(tmp_path / "never")["best/model.safetensors"] != expected["best/model.safetensors"]


def test_a_run_that_splits_and_agrees_learns_and_is_measured(tmp_path):
    """By its own text: the measures are those of words, on tokens that are whole."""
    change = {"objective.agreement": 1.0, "training.accumulate": 1, "tokenizer.shared": False}
    train(write_recipe(tmp_path, SPLITTING), change, folder=tmp_path / "run")
    measured = [line for line in read_metrics(Folder(tmp_path / "run").metrics) if "valid_loss" in line]
    assert measured[-1]["valid_loss"] < measured[0]["valid_loss"]
    assert measured[-1]["valid_perplexity"] == pytest.approx(math.exp(measured[-1]["valid_loss"]))


def test_learnt_positions_are_enough(tmp_path):
    """A network of 20 positions, and rows of which many would need more."""
    network = {"family": "bart", "layers": [1, 1], "model_dim": 16, "heads": 2, "length": 20}
    change = {"network": network, "training.steps": 3, "objective.splitting": 0.9}
    loop = assemble(read(write_recipe(tmp_path, SPLITTING), change), Folder(tmp_path / "looked"), Lines(None))
    assert loop.objective.longest == 20
    stream = loop.batches.at(0, 0)
    for _ in range(3):
        loop.update(stream)
    loop.objective = replace(loop.objective, longest=None)
    with pytest.raises(ValueError, match="longer than the 20 positions"):
        loop.update(stream)


@pytest.mark.parametrize(("length", "said"), [(30, True), (24, False)])
def test_pieces_that_have_no_room_to_grow_are_told(tmp_path, capsys, length, said):
    (tmp_path / "t.txt").write_text("\n".join(corpus(20)))
    text = (
        f'task = "generate"\n[data]\ntrain = ["t.txt"]\nlength = {length}\n[tokenizer]\nkind = "bpe"\nsize = 300\n'
        '[network]\nfamily = "gpt2"\nlayers = 1\nmodel_dim = 8\nheads = 1\nlength = 32\n'
        "[objective]\nsplitting = 0.2\n[training]\ntokens = 64\nsteps = 1\n"
    )
    (tmp_path / "recipe.toml").write_text(text)
    train(tmp_path / "recipe.toml", folder=tmp_path / "run")
    assert (f"pieces of {length} tokens grow" in capsys.readouterr().err) is said
