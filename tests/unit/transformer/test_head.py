from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import activate, apply_linear, normalized
from unit.transformer.small_networks import (
    LAYER_NORM,
    MODEL,
    RMS_NORM,
    VOCABULARY,
    WORDS,
    close,
    decoder_only,
    dropout_as_factor,
    encoder_decoder,
    encoder_only,
    few,
    gradients,
    made,
    numbers,
    randomized,
    text,
)

from regard.transformer import config, head
from regard.transformer import pooling as pools
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Activation, OutputBias, Pooling, Weights
from regard.transformer.embedding import Tokens

ROWS = BatchLayout.of([3, 1, 4, 4])
TRANSFORM = config.Transform(activation=Activation.GELU, norm=LAYER_NORM)
CLASSES = config.Classification(labels=3, pooling=Pooling.MEAN, transform=TRANSFORM, bias=True)


def built(design, dim=MODEL):
    """A head on a network whose token embedding has size `dim`."""
    tokens = Tokens(VOCABULARY, dim)
    module = randomized(head.build(design, MODEL, tokens)).eval()
    return module, numbers(ROWS.num_tokens, MODEL, seed=1).requires_grad_()


TEXT_POOLING = [Pooling.FIRST, Pooling.LAST, Pooling.MEAN]  # the others are for images: test_vision.py


def pooled_by_loop(pooling, x, lengths):
    rows = []
    for row in x.split(list(lengths)):
        mean = sum(row[i] for i in range(len(row))) / len(row)
        rows.append({Pooling.FIRST: row[0], Pooling.LAST: row[len(row) - 1], Pooling.MEAN: mean}[pooling])
    return torch.stack(rows)


def transformed(design, module, x):
    x = activate(design.activation, apply_linear(module.dense, x))
    return x if design.norm is None else normalized(design.norm, module.norm, x)


def check(found, expected, inputs):
    close(found, expected, 1e-12)
    for mine, theirs in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(mine, theirs, 1e-10)


@pytest.mark.parametrize("pooling", TEXT_POOLING)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@few
def test_pooling_makes_of_each_row_one_vector(pooling, lengths):
    x = numbers(sum(lengths), 5).requires_grad_()
    check(pools.pool(pooling, x, BatchLayout.of(lengths)), pooled_by_loop(pooling, x, lengths), [x])


@pytest.mark.parametrize("bias", OutputBias)
@pytest.mark.parametrize("weights", Weights)
@pytest.mark.parametrize("transform", [None, TRANSFORM, replace(TRANSFORM, norm=None)], ids=["none", "norm", "bare"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_language_model_scores_every_token_of_the_vocabulary(bias, weights, transform, scale):
    design = replace(WORDS, bias=bias, weights=weights, transform=transform, scale=scale)
    module, x = built(design)
    scores = module(x, ROWS)
    y = x if transform is None else transformed(transform, module.transform, x)
    expected = scale * y @ module.output.weight.T
    if bias is not OutputBias.NONE:
        assert module.bias.abs().min() > 0
        expected = expected + module.bias
    assert scores.sequence_logits is None
    check(scores.token_logits, expected, [x, *(p for p in module.parameters() if p.requires_grad)])


@pytest.mark.parametrize("weights", Weights)
def test_where_the_table_is_smaller_the_transform_leads_to_its_size(weights):
    module, x = built(replace(WORDS, transform=TRANSFORM, weights=weights), dim=7)
    assert module.output.weight.shape == (VOCABULARY, 7)
    expected = 0.7 * transformed(TRANSFORM, module.transform, x) @ module.output.weight.T + module.bias
    close(module(x, ROWS).token_logits, expected, 1e-12)


@pytest.mark.parametrize("make", [encoder_only, decoder_only, encoder_decoder])
def test_a_tied_matrix_is_the_table_itself_and_learns_from_both_uses(make):
    tied, own = (made(make("learned", head=replace(WORDS, weights=weights))) for weights in Weights.__reversed__())
    side = "target" if make is encoder_decoder else "embedding"
    table = getattr(tied, side).tokens.weight
    assert tied.head.output.weight is table
    assert own.head.output.weight is not getattr(own, side).tokens.weight
    own.load_state_dict(tied.state_dict())
    given_tokens = (text(2, 5), text(2, 4, seed=1)) if make is encoder_decoder else (text(2, 5),)
    one, other = tied(*given_tokens).logits, own(*given_tokens).logits
    close(one, other, 1e-12)
    [together] = gradients(one, [table])
    below, above = gradients(other, [getattr(own, side).tokens.weight, own.head.output.weight])
    assert below.abs().max() > 1e-3
    assert above.abs().max() > 1e-3
    close(together, below + above, 1e-11)


def test_a_fixed_bias_counts_but_is_not_trained():
    network = made(decoder_only(head=replace(WORDS, bias=OutputBias.FIXED)))
    bias = network.head.bias
    before = network(text(1, 4)).logits
    before.sum().backward()
    assert not bias.requires_grad
    assert bias.grad is None
    with torch.no_grad():
        bias.add_(numbers(VOCABULARY, seed=5))
    close(network(text(1, 4)).logits, before + numbers(VOCABULARY, seed=5), 1e-12)
    assert "head.bias" in network.state_dict()


def test_a_learnt_bias_is_trained():
    network = made(decoder_only(head=WORDS))
    [gradient] = gradients(network(text(1, 4)).logits, [network.head.bias])
    assert gradient.abs().min() > 0


def classified(design, module, x, training):
    keep = (1 - design.input_dropout, 1 - design.dropout) if training else (1, 1)
    pooled = keep[0] * pooled_by_loop(design.pooling, x, ROWS.lengths)
    if design.transform is not None:
        pooled = transformed(design.transform, module.transform, pooled)
    return apply_linear(module.output, keep[1] * pooled)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transform", [None, config.Transform(activation=Activation.TANH, norm=RMS_NORM)])
@pytest.mark.parametrize("pooling", TEXT_POOLING)
def test_classification_pools_transforms_and_scores_with_dropout_before_each(pooling, transform, bias, training):
    design = replace(CLASSES, pooling=pooling, transform=transform, bias=bias, input_dropout=0.3, dropout=0.4)
    module, x = built(design)
    assert (module.output.bias is not None) == bias
    with dropout_as_factor():
        scores = module.train(training)(x, ROWS)
    assert scores.token_logits is None
    check(scores.sequence_logits, classified(design, module, x, training), [x, *module.parameters()])


@pytest.mark.parametrize("pooling", TEXT_POOLING)
def test_a_pooler_gives_the_transformed_vector(pooling):
    design = config.Pooler(pooling=pooling, transform=TRANSFORM)
    module, x = built(design)
    expected = transformed(TRANSFORM, module.transform, pooled_by_loop(pooling, x, ROWS.lengths))
    output = module(x, ROWS)
    assert output.sequence_logits is None
    check(output.pooled, expected, [x, *module.parameters()])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("design", "rate", "bias"),
    [
        (config.Tagging(labels=5, bias=True, dropout=0.3), 0.3, True),
        (config.Tagging(labels=5, bias=False, dropout=0.3), 0.3, False),
        (config.Span(labels=2, bias=True, dropout=0.2), 0.2, True),
    ],
    ids=["tagging", "tagging without bias", "span"],
)
def test_tagging_and_span_score_each_position_alone(design, rate, bias, training):
    module, x = built(design)
    assert (module.output.bias is not None) == bias
    with dropout_as_factor():
        scores = module.train(training)(x, ROWS)
    assert scores.token_logits.shape == (ROWS.num_tokens, design.labels)
    check(
        scores.token_logits, apply_linear(module.output, x * (1 - rate if training else 1)), [x, *module.parameters()]
    )


def test_replaced_tokens_are_told_by_one_score_after_a_transform():
    module, x = built(config.ReplacedTokens(transform=TRANSFORM))
    expected = apply_linear(module.output, transformed(TRANSFORM, module.transform, x))
    assert expected.shape == (ROWS.num_tokens, 1)
    check(module(x, ROWS).token_logits, expected, [x, *module.parameters()])


def test_two_heads_say_what_each_says_alone():
    module, x = built(config.TwoHeads(words=WORDS, sentence=CLASSES))
    scores = module(x, ROWS)
    close(scores.token_logits, 0.7 * x @ module.words.output.weight.T + module.words.bias, 1e-12)
    close(scores.sequence_logits, classified(CLASSES, module.sentence, x, training=False), 1e-12)


HEADS = {
    "words": WORDS,
    "classes": CLASSES,
    "pooler": config.Pooler(pooling=Pooling.LAST, transform=TRANSFORM),
    "tags": config.Tagging(labels=5, bias=True),
    "span": config.Span(labels=2, bias=True),
    "replaced": config.ReplacedTokens(transform=TRANSFORM),
    "two": config.TwoHeads(words=WORDS, sentence=replace(CLASSES, pooling=Pooling.FIRST)),
}


@pytest.mark.parametrize("with_gradients", [True, False])  # without them, logits are computed in chunks
@pytest.mark.parametrize("kind", HEADS)
def test_on_padded_rows_every_head_says_of_each_row_what_it_says_of_it_alone(kind, with_gradients, monkeypatch):
    monkeypatch.setattr("regard.transformer.network_base.LOGITS_CHUNK", 3)
    with torch.set_grad_enabled(with_gradients):
        check_padded_rows(kind)


def check_padded_rows(kind):
    network = made(encoder_only("learned", head=HEADS[kind]))
    tokens = text(3, 6)
    real = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    output = network(tokens, real)
    assert (output.sequence_logits is not None) == (kind == "two")
    for row in range(3):
        alone = network(tokens[row, real[row]][None])
        if kind == "classes":
            close(output.logits[row], alone.logits[0])
        elif kind == "pooler":
            assert output.logits is None
            close(output.pooled[row], alone.pooled[0])
        else:
            close(output.logits[row, real[row]], alone.logits[0])
        if kind == "two":
            close(output.sequence_logits[row], alone.sequence_logits[0])
