from dataclasses import replace

import pytest
import torch
from unit.transformer.reference_network import ReferenceNetwork
from unit.transformer.small_networks import (
    AT_EMBEDDING,
    LAYER_NORM,
    MODEL,
    RMS_NORM,
    SEGMENTS,
    VOCABULARY,
    close,
    decoder_only,
    dropout_as_factor,
    embedding,
    encoder_decoder,
    gradients,
    made,
    numbers,
    packed,
    randomized,
    shared,
    text,
)

from regard.transformer import config
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.embedding import Embedding

TEXTS = [text(5), text(2, seed=1), text(2, seed=2)]
KINDS = {
    "tokens": dict(),
    "everything": dict(segments=SEGMENTS, norm=LAYER_NORM),
    "factorised": dict(segments=SEGMENTS, norm=RMS_NORM, dim=7, projection=config.Projection(bias=True)),
    "factorised without bias": dict(dim=7, projection=config.Projection(bias=False)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("position", ["none", *AT_EMBEDDING])
@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_the_norm_dropout_and_the_projection_in_this_order(kind, position, training):
    design = embedding(position, dropout=0.3, **KINDS[kind])
    module = randomized(Embedding(design, MODEL)).train(training)
    tokens, layout = packed(TEXTS)
    segments = text(layout.num_tokens, seed=3, kinds=SEGMENTS) if design.segments else None
    with dropout_as_factor():
        found = module(tokens, layout, segments)
    plain = ReferenceNetwork(shared(decoder_only()), training)
    cut = [None] * 3 if segments is None else segments.split(list(layout.lengths))
    expected = torch.cat([plain.embedded(design, module, *row) for row in zip(TEXTS, cut, strict=True)])
    close(found, expected, 1e-12)
    inputs = list(module.parameters())
    for mine, theirs in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(mine, theirs, 1e-11)


def test_segments_default_to_the_first_kind():
    module = randomized(Embedding(embedding(segments=SEGMENTS), MODEL))
    tokens, layout = packed(TEXTS)
    assert torch.equal(module(tokens, layout), module(tokens, layout, torch.zeros_like(tokens)))
    assert not torch.equal(module(tokens, layout), module(tokens, layout, torch.ones_like(tokens)))


def test_segments_are_an_error_where_the_network_knows_none():
    tokens, layout = packed(TEXTS)
    with pytest.raises(ValueError, match="has no segment embeddings: do not pass `segments`"):
        randomized(Embedding(embedding(), MODEL))(tokens, layout, torch.zeros_like(tokens))


def test_a_table_of_another_size_needs_a_projection():
    with pytest.raises(ValueError, match=f"embedding dim 7 differs from model_dim {MODEL}: add a Projection"):
        Embedding(embedding(dim=7), MODEL)


def test_only_a_target_can_use_the_tokens_of_the_source():
    with pytest.raises(ValueError, match="SourceTokens is only valid for the target embedding of an encoder-decoder"):
        Embedding(embedding(tokens=config.SourceTokens()), MODEL)


def test_a_shared_table_is_one_parameter_that_learns_from_source_and_target():
    network = made(encoder_decoder())
    assert network.target.tokens.weight is network.source.tokens.weight
    target_alone, source_alone = torch.tensor([[3, 4]]), torch.tensor([[7, 8, 9]])
    [gradient] = gradients(network(source_alone, target_alone).hidden, [network.source.tokens.weight])
    used = gradient.abs().sum(dim=1) > 0
    assert used.nonzero()[:, 0].tolist() == [3, 4, 7, 8, 9]


def test_with_its_own_table_the_target_has_its_own_vocabulary():
    design = encoder_decoder()
    design = replace(design, target=embedding(tokens=config.Tokens(vocabulary=31, padding=0)))
    network = made(design)
    assert network.target.tokens.weight.shape == (31, MODEL)
    assert network.source.tokens.weight.shape == (VOCABULARY, MODEL)


def test_the_vector_of_padding_is_never_read():
    network = made(decoder_only("learned"))
    tokens = text(2, 6) % (VOCABULARY - 1) + 1
    real = torch.ones(2, 6, dtype=torch.bool)
    real[0, :2] = real[1, 5:] = False
    tokens[~real] = network.config.embedding.tokens.padding
    [gradient] = gradients(network(tokens, real).hidden, [network.embedding.tokens.weight])
    assert bool((gradient[0] == 0).all())
    before = network(tokens, real).hidden
    with torch.no_grad():
        network.embedding.tokens.weight[0] = torch.nan
    assert torch.equal(network(tokens, real).hidden, before)


def test_scale_multiplies_tokens_alone():
    module = randomized(Embedding(embedding("learned", segments=SEGMENTS), MODEL))
    doubled = randomized(Embedding(embedding("learned", segments=SEGMENTS, scale=2 * 1.7), MODEL))
    tokens, layout = packed(TEXTS)
    close(doubled(tokens, layout) - module(tokens, layout), 1.7 * module.tokens.weight[tokens], 1e-12)


def test_a_token_has_the_same_vector_wherever_its_row_stands_in_the_batch():
    module = randomized(Embedding(embedding("learned"), MODEL))
    tokens = numbers(4).argsort()
    together = module(tokens.repeat(3), BatchLayout.of([4, 4, 4]))
    assert torch.equal(together.view(3, 4, MODEL), module(tokens, BatchLayout.of([4])).expand(3, 4, MODEL))
