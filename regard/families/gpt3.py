"""GPT-3 (Brown et al. 2020), with the sizes of the paper's table 2.1.

GPT-2 with alternating dense and locally banded attention. No weights are published, so there is no published layout:
these networks are saved in regard's own layout.

Two rows of the table contradict themselves. "XL" (1.3B) has 24 heads of 128 at a model size of 2048: taken literally
that is 1.5 billion parameters, so it has 16 heads here, which give 1.3 billion. "13B" has a model size of 5140 and 40
heads of 128 (5120 in total); both are taken as printed. The paper states neither the width of the bands nor whether
the first block is dense: here `band` is an argument, and the first block is dense.
"""

from dataclasses import replace

from regard.families import gpt2
from regard.families.family import FamilyInfo
from regard.transformer.config import Attention, DecoderOnly
from regard.transformer.mask import Band

INFO = FamilyInfo(
    title="GPT-3",
    year=2020,
    paper="Brown et al., Language Models are Few-Shot Learners",
    objective="causal language modelling",
    parent="GPT-2",
)

PRESETS = {
    "gpt3-125m": (12, 768, 12, 64),
    "gpt3-350m": (24, 1024, 16, 64),
    "gpt3-760m": (24, 1536, 16, 96),
    "gpt3-1.3b": (24, 2048, 16, 128),
    "gpt3-2.7b": (32, 2560, 32, 80),
    "gpt3-6.7b": (32, 4096, 32, 128),
    "gpt3-13b": (40, 5140, 40, 128),
    "gpt3-175b": (96, 12288, 96, 128),
}
"""Layers, model_dim, heads, head_dim."""


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
    """Return the config of a GPT-3 of any size: dense blocks alternate with blocks that attend to `band` tokens."""
    keys = {"n_layer": layers, "n_embd": model_dim, "n_head": 1, "vocab_size": vocabulary, "n_positions": length}
    design, _ = gpt2.FAMILY.read_config(keys, "GPT2LMHeadModel")
    assert isinstance(design, DecoderOnly)
    dense = design.decoder.blocks[0]
    attention: Attention = replace(
        dense.attention, heads=heads, key_value_heads=heads, head_dim=head_dim, scale=head_dim**-0.5
    )
    dense = replace(dense, attention=attention)
    banded = replace(dense, mask=Band(width=band))
    return replace(design, decoder=replace(design.decoder, blocks=(dense, banded)))


def preset(name: str) -> DecoderOnly:
    """Return the network config of a size of the paper."""
    layers, model_dim, heads, head_dim = PRESETS[name]
    return gpt3(layers=layers, model_dim=model_dim, heads=heads, head_dim=head_dim)
