"""Tiny networks of every generative kind, with random parameters in float64."""

import functools

from unit.transformer.small_networks import WORDS, decoder_only, encoder_decoder, made

from regard.families.registry import FAMILIES

VOCABULARY = 23
XLNET = dict(vocab_size=VOCABULARY, d_model=8, n_layer=1, n_head=2, d_inner=7)
TRANSFORMER_XL = dict(
    vocab_size=VOCABULARY, d_model=8, d_embed=8, n_layer=1, n_head=2, d_head=4, d_inner=7, cutoffs=[7, 15], div_val=2,
    mem_len=5,
)  # fmt: skip
KINDS = ["learned", "rotary", "buckets", "translating", "translating by waves", "memory", "two streams"]


@functools.cache
def network(kind, seed=0):
    return made(design(kind), seed)


def design(kind):
    match kind:
        case "translating":
            return encoder_decoder("learned", WORDS, layers=1)
        case "translating by waves":
            return encoder_decoder("halves", WORDS, layers=1)
        case "memory":
            return FAMILIES["transfo-xl"].read_config(TRANSFORMER_XL, "TransfoXLLMHeadModel")[0]
        case "two streams":
            return FAMILIES["xlnet"].read_config(XLNET, "XLNetLMHeadModel")[0]
        case position:
            return decoder_only(position, WORDS, layers=1)


def translates(kind):
    return kind.startswith("translating")
