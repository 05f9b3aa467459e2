"""BPE-dropout: the text is unchanged, the tokens vary, and only in training mode."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization.sample_texts import SPECIAL
from unit.tokenization.vocabularies import corpus
from unit.training.recipes import load_recipe, train
from unit.training.tiny_data import RECIPE, batch, files_of, ids, random_rows, write_recipe

from regard.data.batches import PackedColumn
from regard.families.registry import FAMILIES
from regard.families.transformer import transformer_2017
from regard.tokenization.algorithms import ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece
from regard.tokenization.tokenizer_trainer import train_tokenizer as learn
from regard.training.objectives import factory
from regard.training.objectives.bpe_dropout import NO_MERGE, BpeDropout, merge_table, split_tokens
from regard.training.objectives.causal import CausalLM
from regard.training.objectives.distillation import Distillation
from regard.training.objectives.factory import build_objective, tokenizer_merge_table
from regard.training.objectives.objective import Loss
from regard.training.objectives.rdrop_objective import RDrop
from regard.training.objectives.translate import Seq2SeqLM
from regard.training.recipe import objective_section
from regard.training.recipe.schema import RecipeError
from regard.training.run.loop import TrainingLoop
from regard.training.run.reporter import LineReporter
from regard.training.run.run import build_loop
from regard.training.run.run_dir import RunDir, read_metrics
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import build

BYTES = learn(ByteBPE(size=500), corpus(600))
PARTS = tokenizer_merge_table(BYTES)
TREE = merge_table({7: (5, 6), 5: (1, 2), 6: (3, 4), 8: (7, 5)}, 10)
"""8 is 7 5, 7 is 5 6, 5 is 1 2, and 6 is 3 4; 0 to 4 and 9 are not merged."""
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
    return [row.tolist() for row in column.values.split(column.layout.lengths)]


def letters(row):
    """Tokens split as far as possible."""
    return [letter for token in row for letter in WHOLE[token]]


def seeded(seed, column, parts, chance, limit=None):
    torch.manual_seed(seed)
    return split_tokens(column, parts, chance, limit)


def near(share, expected, count):
    """Within five standard deviations of the expected share."""
    return abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / count)


# -- the tokens


@given(texts=TEXTS, chance=CHANCES, seed=SEEDS)
@settings(max_examples=200)
def test_the_text_stays_and_rows_keep_their_number_order_and_end(texts, chance, seed):
    rows = BYTES.encode_batch_ids(texts)
    found = rows_of(seeded(seed, ids(*rows), PARTS, chance))
    assert BYTES.decode_batch(found, skip_special_tokens=False) == BYTES.decode_batch(rows, skip_special_tokens=False)
    assert BYTES.decode_batch(found) == texts
    assert all(row[-1] == BYTES.special_ids.eos and row.count(BYTES.special_ids.eos) == 1 for row in found)
    if chance == 1:
        assert [len(row) for row in found] == [len(text.encode()) + 1 for text in texts]  # a token for each byte


@given(rows=ROWS, chance=CHANCES, seed=SEEDS)
@settings(max_examples=200)
def test_what_a_token_becomes_are_its_parts(rows, chance, seed):
    """Split as far as possible, result and input are equal."""
    found = rows_of(seeded(seed, ids(*rows), TREE, chance))
    assert [letters(row) for row in found] == [letters(row) for row in rows]
    if chance == 1:
        assert all(TREE[token, 0] == NO_MERGE for row in found for token in row)


@given(rows=ROWS, seed=SEEDS)
def test_without_a_chance_nothing_changes(rows, seed):
    found = seeded(seed, ids(*rows), TREE, 0.0)
    assert rows_of(found) == rows
    assert found.layout == ids(*rows).layout


@given(rows=ROWS, chance=CHANCES, seed=SEEDS)
def test_where_rows_begin_does_not_matter(rows, chance, seed):
    """Random numbers do not depend on sequences: the same tokens in one long sequence give the same result."""
    together = ids([token for row in rows for token in row])
    found = seeded(seed, ids(*rows), TREE, chance)
    assert found.values.tolist() == seeded(seed, together, TREE, chance).values.tolist()


@given(rows=ROWS, chance=CHANCES, seed=SEEDS, limit=st.integers(1, 14))
@settings(max_examples=200)
def test_a_row_that_would_grow_too_long_stays_whole(rows, chance, seed, limit):
    grown = rows_of(seeded(seed, ids(*rows), TREE, chance))
    found = rows_of(seeded(seed, ids(*rows), TREE, chance, limit))
    assert found == [row if len(more) > limit else more for row, more in zip(rows, grown, strict=True)]


def test_the_column_that_was_given_stays_as_it_was():
    column = ids([8, 7, 9], [6])
    split_tokens(column, TREE, 1.0)
    assert rows_of(column) == [[8, 7, 9], [6]]
    assert rows_of(split_tokens(column, TREE, 1.0)) == [[1, 2, 3, 4, 1, 2, 1, 2, 3, 4, 9], [3, 4]]


def test_rows_that_start_later_still_do():
    column = PackedColumn(torch.tensor([5, 6, 9]), BatchLayout.of((2, 1), starts=(4, 0)))
    assert split_tokens(column, TREE, 1.0).layout == BatchLayout.of((4, 1), starts=(4, 0))


# -- probabilities


@pytest.mark.parametrize("chance", [0.1, 0.5])
def test_each_token_is_taken_apart_with_the_chance_and_each_part_again(chance):
    """Each token has one chance: further rounds for other tokens do not split more of them."""
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
    """The share among merged tokens; others are never split."""
    rows = BYTES.encode_batch_ids(corpus(2000, seed=5))
    column = ids(*rows)
    parted = int((PARTS[column.values, 0] != NO_MERGE).sum())
    only_once = PARTS.clone()
    only_once[PARTS.unique()[1:]] = NO_MERGE  # only tokens that are in no merge, so that there is one round
    splittable = int((only_once[column.values, 0] != NO_MERGE).sum())
    assert splittable > 1000
    once = seeded(3, column, only_once, 0.1)
    assert near((len(once.values) - len(column.values)) / splittable, 0.1, splittable)
    grown = seeded(3, column, PARTS, 0.1)
    assert 0.1 * parted < len(grown.values) - len(column.values) < 0.16 * parted


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
    assert torch.equal(one.values, same.values)
    assert one.layout == same.layout
    assert rows_of(one) != rows_of(other)


# -- the objective


class Seen:
    """An objective that records its batches."""

    def __init__(self):
        self.batches = []

    def loss(self, network, batch):
        self.batches.append(batch)
        return Loss(torch.tensor(0.0), 1)


def gpt(dropout=0.0, layers=1):
    sizes = dict(vocab_size=10, n_embd=8, n_layer=layers, n_head=2, n_positions=64)
    rates = dict(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    return build(FAMILIES["gpt2"].read_config({**sizes, **rates}, "GPT2LMHeadModel")[0])


def test_only_while_training_and_only_the_columns_that_are_named():
    seen, network = Seen(), gpt()
    whole = batch(epoch=3, step=4, source=ids([8, 9], [5]), target=ids([7, 6], [7]), other=ids([7, 7], [7]))
    objective = BpeDropout(
        objective=seen, merge_tables={"source": TREE, "target": merge_table({7: (0, 4)}, 8)}, probability=1.0
    )
    torch.manual_seed(1)
    before = torch.get_rng_state()
    objective.loss(network.eval(), whole)
    assert seen.batches.pop() is whole
    assert torch.equal(torch.get_rng_state(), before)
    objective.loss(network.train(), whole)
    (found,) = seen.batches
    assert rows_of(found["source"]) == [[1, 2, 3, 4, 1, 2, 9], [1, 2]]
    assert rows_of(found["target"]) == [[0, 4, 6], [0, 4]]  # with the merges of the target vocabulary
    assert found["other"] is whole["other"]
    assert (found.epoch, found.step) == (3, 4)
    assert found.indices is whole.indices


def test_the_loss_is_that_of_the_split_batch():
    network = build(transformer_2017(vocabulary=10, layers=(1, 1), model_dim=8, heads=2, dropout=0.0)).double()
    inner = Seq2SeqLM(decoder_start=0, label_smoothing=0.1)
    given = batch(source=ids(*random_rows((9, 7), 10)), target=ids(*random_rows((6, 8), 10, seed=1)))
    objective = BpeDropout(objective=inner, merge_tables={"source": TREE, "target": TREE}, probability=0.5)
    torch.manual_seed(5)
    found = objective.loss(network.train(), given)
    torch.manual_seed(5)
    source, target = (split_tokens(given[name], TREE, 0.5) for name in ("source", "target"))
    assert len(source.values) > 16
    assert len(target.values) > 14
    expected = inner.loss(network, batch(source=source, target=target))
    assert (found.sum, found.count) == (expected.sum, len(target.values))
    evaluated, plain = (one.loss(network.eval(), given) for one in (objective, inner))
    assert (evaluated.sum, evaluated.count, evaluated.correct) == (plain.sum, plain.count, plain.correct)


@pytest.mark.parametrize("kind", ["agree", "distill"])
def test_two_readings_and_a_teacher_are_of_the_same_tokens(kind):
    network = gpt(dropout=0.3)
    inner = (
        RDrop(objective=CausalLM()) if kind == "agree" else Distillation(objective=CausalLM(), teacher=gpt(layers=2))
    )
    given = batch(tokens=ids([8, 7, 9], [5, 6, 7, 8]))
    torch.manual_seed(6)
    found = BpeDropout(objective=inner, merge_tables={"tokens": TREE}, probability=0.5).loss(network.train(), given)
    torch.manual_seed(6)
    parted = split_tokens(given["tokens"], TREE, 0.5)
    expected = inner.loss(network, batch(tokens=parted))
    assert found.count == expected.count == len(parted.values) - 2 > 5
    assert torch.equal(found.sum, expected.sum)


# -- the recipe


def test_an_objective_is_put_together_from_its_options():
    other = learn(ByteBPE(size=300), ["hier sind andere wörter, und noch mehr andere wörter"] * 3)
    both = BYTES.with_target(other)
    found = build_objective(
        objective_section.Seq2SeqLMConfig(bpe_dropout=0.2, rdrop=3.0), both, decoder_start=1, max_length=30
    )
    assert isinstance(found, BpeDropout)
    assert (found.probability, found.max_length) == (0.2, 30)
    assert isinstance(found.objective, RDrop)
    assert isinstance(found.objective.objective, Seq2SeqLM)
    assert torch.equal(found.merge_tables["source"], PARTS)
    assert torch.equal(found.merge_tables["target"], tokenizer_merge_table(other))
    assert len(PARTS) != len(found.merge_tables["target"])
    causal = build_objective(objective_section.CausalLMConfig(bpe_dropout=0.1), BYTES, decoder_start=1)
    assert list(causal.merge_tables) == ["tokens"]
    assert causal.max_length is None
    for design in (objective_section.Seq2SeqLMConfig(), objective_section.CausalLMConfig(bpe_dropout=0.0)):
        assert isinstance(build_objective(design, BYTES, decoder_start=1), Seq2SeqLM | CausalLM)


@pytest.mark.parametrize(("room", "fitting"), [(None, 64), (100, 64), (50, 50)])
def test_a_row_must_fit_the_teacher_too(monkeypatch, room, fitting):
    teacher = gpt()
    assert teacher.max_length == 64
    monkeypatch.setattr(factory, "load", lambda folder, dtype: (teacher, None))
    monkeypatch.setattr(factory, "_check_teacher", lambda *given: None)
    design = objective_section.CausalLMConfig(
        bpe_dropout=0.1, distillation=objective_section.DistillationSection(teacher="there")
    )
    found = build_objective(design, BYTES, decoder_start=1, max_length=room)
    assert isinstance(found.objective, Distillation)
    assert found.max_length == fitting


@pytest.mark.parametrize(
    "kind", [WordPiece(size=400), Unigram(size=300), WordLevel(size=200), CharacterLevel(size=300)]
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_tokenizer_that_has_merged_nothing_is_refused(kind, side):
    other = learn(kind, corpus(200))
    tokenizer = other.with_target(BYTES) if side == "source" else BYTES.with_target(other)
    with pytest.raises(ValueError, match=r"this one has no merges: use tokenizer\.kind = 'bpe', or remove bpe_dropout"):
        build_objective(objective_section.Seq2SeqLMConfig(bpe_dropout=0.1), tokenizer, decoder_start=1)
    build_objective(objective_section.Seq2SeqLMConfig(), tokenizer, decoder_start=1)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "words", "characters"])
def test_a_recipe_whose_tokenizer_merges_nothing_is_refused_before_anything_is_done(tmp_path, kind):
    recipe = write_recipe(tmp_path)
    change = {"objective.bpe_dropout": 0.1, "tokenizer.kind": kind}
    said = rf"bpe_dropout undoes BPE merges, and tokenizer\.kind = '{kind}' has none: use kind = 'bpe', or remove"
    with pytest.raises(RecipeError, match=said):
        train(recipe, change, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    load_recipe(recipe, {**change, "objective.bpe_dropout": 0.0})
    load_recipe(recipe, {**change, "tokenizer.kind": "bpe"})


def test_a_loaded_tokenizer_that_has_merged_nothing_is_refused_before_the_data_is_read(tmp_path):
    learn(WordLevel(size=40), corpus(20)).save(tmp_path / "words")
    recipe = write_recipe(tmp_path)
    change = {"objective.bpe_dropout": 0.1, "tokenizer": {"load": str(tmp_path / "words")}}
    with pytest.raises(ValueError, match="this one has no merges"):
        train(recipe, change, output=tmp_path / "run")
    assert not (tmp_path / "run" / "cache" / "train").exists()


@pytest.mark.parametrize("value", [1, -0.1])
def test_a_chance_is_at_least_0_and_less_than_1(tmp_path, value):
    with pytest.raises(RecipeError, match=r"objective\.bpe_dropout: expected (greater|less) than"):
        load_recipe(write_recipe(tmp_path), {"objective.bpe_dropout": value})


def test_objectives_that_do_not_write_have_no_such_option():
    every = {kind: "bpe_dropout" in kind.model_fields for kind in objective_section.AnyObjectiveConfig.__args__}
    writing = {"Seq2SeqLMConfig", "CausalLMConfig", "GenerativeAnswerConfig"}
    assert {kind.__name__ for kind, has in every.items() if has} == writing
    assert objective_section.Seq2SeqLMConfig().bpe_dropout == objective_section.CausalLMConfig().bpe_dropout == 0


SPLITTING = RECIPE.replace('kind = "words"\nsize = 40', 'kind = "bpe"\nsize = 300') + "[objective]\nbpe_dropout = 0.3\n"
SHORT = {"training.steps": 8, "training.save_every": 3, "training.evaluate_every": 4}


def test_a_run_that_splits_goes_on_bit_for_bit(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, SPLITTING)
    train(recipe, SHORT, output=tmp_path / "whole")
    update = TrainingLoop.update

    def dying(self, stream):
        if self.progress.step == 5:
            raise RuntimeError("the power is gone")
        return update(self, stream)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "update", dying)
        with pytest.raises(RuntimeError, match="power"):
            train(recipe, SHORT, output=tmp_path / "stopped")
    train(recipe, SHORT, output=tmp_path / "stopped", resume=True)
    expected = files_of(tmp_path / "whole")
    assert files_of(tmp_path / "stopped") == expected
    train(recipe, {**SHORT, "objective.bpe_dropout": 0.0}, output=tmp_path / "never")
    assert files_of(tmp_path / "never")["best/model.safetensors"] != expected["best/model.safetensors"]


def test_a_run_that_splits_and_agrees_learns_and_is_measured(tmp_path):
    """Validation metrics are computed on unsplit tokens."""
    change = {"objective.rdrop": 1.0, "training.gradient_accumulation_steps": 1, "tokenizer.shared": False}
    train(write_recipe(tmp_path, SPLITTING), change, output=tmp_path / "run")
    measured = [line for line in read_metrics(RunDir(tmp_path / "run").metrics) if "valid_loss" in line]
    assert measured[-1]["valid_loss"] < measured[0]["valid_loss"]
    assert measured[-1]["valid_perplexity"] == pytest.approx(math.exp(measured[-1]["valid_loss"]))


def test_learnt_positions_are_enough(tmp_path):
    """A network with 20 positions, and sequences that would often exceed them."""
    network = {"family": "bart", "layers": [1, 1], "model_dim": 16, "heads": 2, "max_length": 20}
    change = {"network": network, "training.steps": 3, "objective.bpe_dropout": 0.9}
    loop = build_loop(
        load_recipe(write_recipe(tmp_path, SPLITTING), change), RunDir(tmp_path / "looked"), LineReporter(None)
    )
    assert loop.objective.max_length == 20
    stream = loop.batches.iter_from(0, 0)
    for _ in range(3):
        loop.update(stream)
    loop.objective = replace(loop.objective, max_length=None)
    with pytest.raises(ValueError, match="exceeds the 20 learned positions"):
        loop.update(stream)


@pytest.mark.parametrize(("length", "said"), [(30, True), (24, False)])
def test_pieces_that_have_no_room_to_grow_are_told(tmp_path, capsys, length, said):
    (tmp_path / "t.txt").write_text("\n".join(corpus(20)))
    text = (
        f'task = "generate"\n[data]\ntrain = ["t.txt"]\nmax_length = {length}\n[tokenizer]\nkind = "bpe"\nsize = 300\n'
        '[network]\nfamily = "gpt2"\nlayers = 1\nmodel_dim = 8\nheads = 1\nmax_length = 32\n'
        "[objective]\nbpe_dropout = 0.2\n[training]\nbatch_tokens = 64\nsteps = 1\n"
    )
    (tmp_path / "recipe.toml").write_text(text)
    train(tmp_path / "recipe.toml", output=tmp_path / "run")
    assert (f"chunks of {length} tokens become longer" in capsys.readouterr().err) is said
