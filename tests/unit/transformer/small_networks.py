"""Small random networks. All sizes differ, so that no two axes can be mistaken for each other."""

import contextlib
import functools
from dataclasses import replace

import torch
from hypothesis import Phase, settings
from torch.nn import functional

from regard.transformer import config, network
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Activation, Layout, NormOrder, OutputBias, Weights
from regard.transformer.mask import Causal, Everything

MODEL, VOCABULARY, SEGMENTS, ROOM = 10, 23, 3, 40


def examples(count):
    """Hypothesis settings for `count` examples, the same in every run. No shrinking: it would take minutes."""
    return settings(max_examples=count, deadline=None, derandomize=True, phases=[Phase.generate])


few, many = examples(12), examples(60)

ATTENTION = config.Attention(
    heads=4, key_value_heads=2, head_dim=6, scale=0.37, bias=True, output_bias=True, position=None
)
DENSE = config.Dense(dim=7, activation=Activation.GELU, bias=True)
GATED = config.Gated(dim=7, activation=Activation.SILU, bias=True)
LAYER_NORM = config.LayerNorm(epsilon=1e-3)
RMS_NORM = config.RMSNorm(epsilon=1e-3)
BLOCK = config.Block(
    attention=ATTENTION,
    cross_attention=None,
    feedforward=DENSE,
    norm=LAYER_NORM,
    order=NormOrder.PRE,
    mask=Everything(),
)
CROSS = replace(BLOCK, cross_attention=replace(ATTENTION, key_value_heads=1, head_dim=5), feedforward=GATED)
STACK = config.Stack(
    layers=2,
    sharing=config.Apart(),
    blocks=(BLOCK,),
    mask=Everything(),
    position=None,
    memory=None,
    final_norm=RMS_NORM,
)
EMBEDDING = config.Embedding(
    tokens=config.Tokens(vocabulary=VOCABULARY, padding=0),
    dim=MODEL,
    scale=1.7,
    segments=0,
    position=None,
    norm=None,
    projection=None,
)
WORDS = config.LanguageModel(
    vocabulary=VOCABULARY, transform=None, scale=0.7, weights=Weights.TIED, bias=OutputBias.LEARNT
)
NORMAL = config.Normal(deviation=0.02)

AT_EMBEDDING = {
    "interleaved": config.Sinusoidal(layout=Layout.INTERLEAVED, length=ROOM),
    "halves": config.Sinusoidal(layout=Layout.HALVES, length=ROOM),
    "learned": config.Learned(length=ROOM, offset=2),
}
IN_BLOCKS = {
    "rotary": config.Rotary(base=50.0, length=ROOM, stretch=None),
    "buckets": config.RelativeBuckets(buckets=8, distance=9),
    "alibi": config.ALiBi(),
}
POSITIONS = ["none", *AT_EMBEDDING, *IN_BLOCKS]
RELATIVE = ["none", *IN_BLOCKS]


def embedding(position="none", **changes):
    return replace(EMBEDDING, position=AT_EMBEDDING.get(position), **changes)


def stack(position="none", **changes):
    return replace(STACK, position=IN_BLOCKS.get(position), **changes)


def encoder_only(position="none", head=None, **changes):
    """`changes` apply to the stack."""
    return config.EncoderOnly(
        model_dim=MODEL,
        embedding=embedding(position, segments=SEGMENTS, norm=LAYER_NORM),
        encoder=stack(position, **changes),
        head=head,
        initialization=NORMAL,
    )


def decoder_only(position="none", head=None, **changes):
    """`changes` apply to the stack."""
    return config.DecoderOnly(
        model_dim=MODEL,
        embedding=embedding(position),
        decoder=stack(position, **({"mask": Causal()} | changes)),
        head=head,
        initialization=NORMAL,
    )


def encoder_decoder(position="none", head=None, **changes):
    """`changes` apply to the decoder. The token embeddings of encoder and decoder are tied."""
    return config.EncoderDecoder(
        model_dim=MODEL,
        source=embedding(position),
        target=embedding(position, tokens=config.SourceTokens()),
        encoder=stack(position),
        decoder=stack(position, **({"mask": Causal(), "blocks": (CROSS,), "layers": 3} | changes)),
        head=head,
        initialization=NORMAL,
    )


DESIGNS = {"encoder": encoder_only, "decoder": decoder_only, "both": encoder_decoder}


def made(design, seed=0):
    """Build a network in float64 with random parameters."""
    return randomized(network.build(design, dtype=torch.float64), seed).eval()


@functools.cache
def shared(design):
    """The same, built once for all tests that do not modify it."""
    return made(design)


def randomized(module, seed=0):
    """Set norm weights to random values around one, all other parameters to random values around zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.named_parameters():
            norm = name.endswith("weight") and value.ndim == 1
            value.copy_(0.4 * torch.randn(value.shape, generator=generator, dtype=torch.float64) + norm)
    return module.double()


def numbers(*shape, seed=0):
    """Random float64 numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def text(*shape, seed=0, kinds=VOCABULARY):
    """Random token ids."""
    return torch.randint(0, kinds, shape, generator=torch.Generator().manual_seed(seed))


def chances(*shape, seed=0, p=0.5):
    """Random True and False."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < p


def packed(rows):
    """Concatenate sequences of token ids, and return them with their `BatchLayout`."""
    return torch.cat(rows), BatchLayout.of([len(row) for row in rows])


def close(one, other, tolerance=1e-9):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def apart(one, other):
    """Largest absolute difference in each vector."""
    return (one - other).detach().abs().amax(dim=-1)


def gradients(output, inputs):
    """The gradients of a random weighting of an output; zero where an input was not used."""
    found = torch.autograd.grad((output * numbers(*output.shape, seed=99)).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


@contextlib.contextmanager
def dropout_as_factor():
    """Replace dropout by multiplication with 1 - p in training, so that a wrong place or probability shows."""
    real = functional.dropout
    functional.dropout = lambda x, p=0.5, training=True, inplace=False: x * (1 - p) if training else x
    try:
        yield
    finally:
        functional.dropout = real
