"""A sequence gets the same random numbers in any batch: losses and gradients of a batch are the sum of its parts."""

import numpy as np
import pytest
import torch
from unit.native.no_native import without_native_library

import regard
from regard.data.batches import Batch, PackedColumn
from regard.native.library import available
from regard.training.modules.draw_scope import current_scope, enter_scope
from regard.training.modules.fused_modules import fuse_modules
from regard.training.objectives.bpe_dropout import BpeDropout, merge_table
from regard.training.objectives.causal import CausalLM
from regard.training.objectives.masked import MaskedLM
from regard.training.objectives.objective import Loss
from regard.training.objectives.rdrop_objective import RDrop
from regard.training.objectives.translate import Seq2SeqLM
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import build

VOCABULARY = 40
LENGTHS = {"source": (3, 7, 3, 1, 18, 7), "target": (4, 2, 4, 5, 20, 2), "tokens": (3, 7, 3, 2, 18, 7)}
SIZES = {
    "transformer": dict(vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24,
                        dropout=0.3, attention_dropout=0.2, activation_dropout=0.1, pad_token_id=0),
    "t5": dict(vocab_size=VOCABULARY, d_model=16, d_kv=8, num_heads=2, d_ff=24, num_layers=2, dropout_rate=0.3),
    "gpt2": dict(vocab_size=VOCABULARY, n_embd=16, n_head=2, n_layer=2, n_positions=32, resid_pdrop=0.3, attn_pdrop=0.2,
                 embd_pdrop=0.1),
    "bert": dict(vocab_size=VOCABULARY, hidden_size=16, num_attention_heads=2, num_hidden_layers=2,
                 intermediate_size=24, max_position_embeddings=32, hidden_dropout_prob=0.3,
                 attention_probs_dropout_prob=0.2),
    "albert": dict(vocab_size=VOCABULARY, embedding_size=8, hidden_size=16, num_attention_heads=2, num_hidden_layers=3,
                   intermediate_size=24, max_position_embeddings=32, hidden_dropout_prob=0.3,
                   attention_probs_dropout_prob=0.2),
}  # fmt: skip
FAMILY_OF = {"transformer": ("marian", "MarianMTModel"), "t5": ("t5", "T5ForConditionalGeneration"),
             "gpt2": ("gpt2", "GPT2LMHeadModel"), "bert": ("bert", "BertForMaskedLM"),
             "albert": ("albert", "AlbertForMaskedLM")}  # fmt: skip


@pytest.fixture(params=["native", "torch"])
def kernels(request, monkeypatch):
    if request.param == "torch":
        without_native_library(monkeypatch)
    elif not available():
        pytest.skip("this machine has no native library")
    return request.param


def network_of(name):
    from regard.families.registry import FAMILIES

    family, architecture = FAMILY_OF[name]
    design, _ = FAMILIES[family].read_config(SIZES[name], architecture)
    network = build(design, seed=1).train()
    fuse_modules(network)
    return network


def objective_of(name):
    if name in ("transformer", "t5"):
        return Seq2SeqLM(decoder_start=0)
    if name == "gpt2":
        return CausalLM()
    return MaskedLM(mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=VOCABULARY, mask_probability=0.3)


def rows_of(names):
    """The rows of a small corpus, column by column."""
    random = torch.Generator().manual_seed(5)
    return {
        name: [torch.randint(5, VOCABULARY, (length,), generator=random) for length in LENGTHS[name]] for name in names
    }


def batch_of(columns, rows, seed=3):
    made = {
        name: PackedColumn(torch.cat([values[row] for row in rows]), BatchLayout.of([len(values[row]) for row in rows]))
        for name, values in columns.items()
    }
    return Batch(made, np.array(rows), 2, 0).with_random_keys(seed)


def loss_and_gradients(network, objective, batch):
    network.zero_grad()
    torch.manual_seed(0)
    loss = objective.loss(network, batch)
    loss.sum.backward()
    enter_scope(None)
    gradients = {name: value.grad.clone() for name, value in network.named_parameters() if value.grad is not None}
    return float(loss.sum.detach()), gradients


SPLITS = ([[0, 1, 2, 3, 4, 5]], [[0], [1], [2], [3], [4], [5]], [[5, 3], [4], [2, 0, 1]])


def assert_same(found, expected):
    losses, gradients = zip(*found, strict=True)
    assert sum(losses) == pytest.approx(expected[0], rel=1e-5)
    for name, gradient in expected[1].items():
        total = sum(each[name] for each in gradients if name in each)
        assert (total - gradient).abs().max() <= 1e-4 * gradient.abs().max() + 1e-6, name


@pytest.mark.parametrize("name", FAMILY_OF)
def test_losses_and_gradients_are_the_sum_of_those_of_any_parts(name, kernels):
    network, objective = network_of(name), objective_of(name)
    columns = rows_of(["source", "target"] if name in ("transformer", "t5") else ["tokens"])
    whole, *others = ([loss_and_gradients(network, objective, batch_of(columns, rows)) for rows in split]
                      for split in SPLITS)  # fmt: skip
    for parts in others:
        assert_same(parts, whole[0])
    other_seed = loss_and_gradients(network, objective, batch_of(columns, [0, 1, 2, 3, 4, 5], seed=4))
    assert other_seed[0] != pytest.approx(whole[0][0], rel=1e-4), "the draws matter"


@pytest.mark.parametrize("name", ["transformer", "albert"])
def test_gradient_checkpointing_draws_the_same(name):
    columns = rows_of(["source", "target"] if name == "transformer" else ["tokens"])
    network, objective, batch = network_of(name), objective_of(name), batch_of(columns, [0, 1, 2, 3, 4, 5])
    expected = loss_and_gradients(network, objective, batch)
    network.set_gradient_checkpointing()
    assert_same([loss_and_gradients(network, objective, batch)], expected)


def test_layers_that_share_a_block_have_masks_of_their_own(monkeypatch):
    from regard.training.modules import draw_scope

    network, seen = network_of("albert"), []
    mixed = draw_scope.DrawScope._mixed
    monkeypatch.setattr(
        draw_scope.DrawScope, "_mixed", lambda self, site, call: seen.append(mixed(self, site, call)) or seen[-1]
    )
    loss_and_gradients(network, objective_of("albert"), batch_of(rows_of(["tokens"]), [0, 1]))
    assert len(set(seen)) == len(seen) == 1 + 3 * 2, "the embedding, and two sites in each of three layers"


@pytest.mark.parametrize("name", ["transformer", "bert"])
def test_rdrop_in_any_batches(name):
    columns = rows_of(["source", "target"] if name == "transformer" else ["tokens"])
    network, objective = network_of(name), RDrop(objective=objective_of(name), alpha=2.0)
    whole, single, parts = ([loss_and_gradients(network, objective, batch_of(columns, rows)) for rows in split]
                            for split in SPLITS)  # fmt: skip
    assert_same(single, whole[0])
    assert_same(parts, whole[0])
    plain = loss_and_gradients(network, RDrop(objective=objective_of(name), alpha=0.0), batch_of(columns, [0, 1]))
    assert loss_and_gradients(network, objective, batch_of(columns, [0, 1]))[0] > plain[0], "the two passes differ"


def test_bpe_dropout_splits_a_sequence_in_the_same_way_in_any_batch():
    merges = merge_table({token: (token - 10, token - 11) for token in range(20, VOCABULARY)}, VOCABULARY)
    columns = rows_of(["tokens"])
    splits = []

    class Recorder:
        def loss(self, network, batch):
            lengths = batch["tokens"].layout.lengths
            splits.append(dict(zip(batch.indices.tolist(), torch.split(batch["tokens"].values, lengths), strict=True)))
            return Loss(torch.zeros(()), 1)

    class Training:
        training = True

    for rows in (row for split in SPLITS for row in split):
        wrapped = BpeDropout(objective=Recorder(), merge_tables={"tokens": merges}, probability=0.4)
        wrapped.loss(Training(), batch_of(columns, rows))
    for split in splits[1:]:
        for row, tokens in split.items():
            assert torch.equal(tokens, splits[0][row])
    assert any(len(splits[0][row]) > LENGTHS["tokens"][row] for row in range(6)), "something was split"


@pytest.mark.parametrize("whole_words", [False, True])
def test_masking_rates(whole_words):
    continuation = (torch.arange(VOCABULARY) % 3 == 0) if whole_words else None
    objective = MaskedLM(
        mask_token=4, special_tokens=(0, 1, 2, 3, 4), vocab_size=VOCABULARY, mask_probability=0.2,
        continuation_mask=continuation,
    )  # fmt: skip
    tokens = torch.randint(5, VOCABULARY, (40, 500))
    keys = batch_of({"tokens": list(tokens)}, list(range(40)))["tokens"]
    inputs, labels = objective.mask_tokens(keys)
    selected = labels != -100
    sigma = (0.2 * 0.8 / tokens.numel()) ** 0.5 * (2 if whole_words else 1)
    assert abs(selected.float().mean().item() - 0.2) < 4 * sigma
    values = keys.values
    counts = [(inputs[selected] == 4).sum(), (inputs[selected] == values[selected]).sum()]
    masked, unchanged = (int(count) / int(selected.sum()) for count in counts)
    assert abs(masked - 0.8) < 0.02
    assert abs(unchanged - 0.1 - 0.1 / 35) < 0.015
    assert torch.equal(inputs[~selected], values[~selected])


def test_without_keys_the_numbers_come_from_torch_as_before():
    network, columns = network_of("gpt2"), rows_of(["tokens"])
    batch = batch_of(columns, [0, 1])
    plain = Batch({"tokens": batch["tokens"].with_sequence_keys(None)}, batch.indices, 2, 0)
    first = loss_and_gradients(network, objective_of("gpt2"), plain)
    assert first[0] == loss_and_gradients(network, objective_of("gpt2"), plain)[0]
    assert first[0] != loss_and_gradients(network, objective_of("gpt2"), batch)[0]
    assert current_scope() is None
    assert regard.__version__
