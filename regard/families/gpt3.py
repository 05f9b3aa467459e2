"""GPT-3 (Brown et al. 2020), with the sizes of the paper's table 2.1.

GPT-2 with blocks that see the whole text and blocks that see a band of it, in turn. No weights are published, so there
is no layout to follow: these networks are saved under our own names.

Two rows of the table contradict themselves. "XL" (1.3B) has 24 heads of 128 at a model size of 2048: taken literally
that is 1.5 billion parameters, so it has 16 heads here, which give 1.3 billion. "13B" has a model size of 5140 and 40
heads of 128 (5120 together); both are taken as printed. How wide the bands are, and whether the first block is a dense
one, the paper does not say: `band` is a choice, and the first block is dense.
"""

from dataclasses import replace

from regard.families import gpt2
from regard.families.family import Story
from regard.transformer.config import Attention, DecoderOnly
from regard.transformer.mask import Band

STORY = Story(
    title="GPT-3",
    year=2020,
    paper="Brown et al., Language Models are Few-Shot Learners",
    objective="continue the text",
    parent="GPT-2",
)

SIZES = {
    "gpt3-125m": (12, 768, 12, 64),
    "gpt3-350m": (24, 1024, 16, 64),
    "gpt3-760m": (24, 1536, 16, 96),
    "gpt3-1.3b": (24, 2048, 16, 128),
    "gpt3-2.7b": (32, 2560, 32, 80),
    "gpt3-6.7b": (32, 4096, 32, 128),
    "gpt3-13b": (40, 5140, 40, 128),
    "gpt3-175b": (96, 12288, 96, 128),
}
"""Layers, model size, heads, head size."""


def gpt3(
    *,
    layers: int,
    model_dim: int,
    heads: int,
    head_dim: int,
    vocabulary: int = 50257,
    length: int = 2048,
    band: int = 128,
) -> DecoderOnly:
    """A GPT-3 of any size: dense blocks and blocks with a band of `band` tokens in turn."""
    keys = {"n_layer": layers, "n_embd": model_dim, "n_head": 1, "vocab_size": vocabulary, "n_positions": length}
    design, _ = gpt2.FAMILY.read(keys, "GPT2LMHeadModel")
    assert isinstance(design, DecoderOnly)
    dense = design.decoder.blocks[0]
    attention: Attention = replace(
        dense.attention, heads=heads, key_value_heads=heads, head_dim=head_dim, scale=head_dim**-0.5
    )
    dense = replace(dense, attention=attention)
    banded = replace(dense, mask=Band(width=band))
    return replace(design, decoder=replace(design.decoder, blocks=(dense, banded)))


def preset(name: str) -> DecoderOnly:
    """A size of the paper's."""
    layers, model_dim, heads, head_dim = SIZES[name]
    return gpt3(layers=layers, model_dim=model_dim, heads=heads, head_dim=head_dim)
