"""mBART (Liu et al. 2020): BART for many languages, each text ending with the code of its language.

BART with the norms before the sublayers and one after each stack; the norm after the embedding stays.
"""

from dataclasses import replace
from typing import Any

from regard.families import bart
from regard.families.bart import BIAS, NORM, OUTPUT
from regard.families.family import Architecture, Family, Story, Theirs
from regard.families.weight_map import Entry
from regard.transformer.config import DecoderOnly, EncoderDecoder, Head, NormOrder, OutputBias, Span, Stack

KEYS = {**bart.KEYS, "num_labels": 2, "normalize_before": True, "add_final_layer_norm": True}


def pre_norm(stack: Stack) -> Stack:
    """A stack of BART's with its norms moved."""
    return replace(stack, blocks=(replace(stack.blocks[0], order=NormOrder.PRE),), final_norm=NORM)


def like_bart(theirs: Theirs) -> Theirs:
    """The same config as BART would write it."""
    theirs.require("normalize_before", True)
    theirs.require("add_final_layer_norm", True)
    values = {key: theirs[key] for key in bart.KEYS}
    return Theirs({**values, "normalize_before": False, "add_final_layer_norm": False}, bart.FAMILY)


def network(theirs: Theirs, head: Head | None) -> EncoderDecoder:
    """The network of a config."""
    design = bart.network(like_bart(theirs), head)
    return replace(design, encoder=pre_norm(design.encoder), decoder=pre_norm(design.decoder))


def decoder_alone(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The decoder without its encoder."""
    design = bart.decoder_alone(like_bart(theirs), head)
    return replace(design, decoder=pre_norm(design.decoder))


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    return bart.describe(design)


def weights(design: EncoderDecoder | DecoderOnly) -> tuple[Entry, ...]:
    """Where the network's weights stand."""
    return (
        *bart.weights(design),
        Entry("@encoder.layer_norm", "encoder.final_norm"),
        Entry("@decoder.layer_norm", "decoder.final_norm"),
    )


FAMILY = Family(
    name="mbart",
    story=Story(
        title="mBART",
        year=2020,
        paper="Liu et al., Multilingual Denoising Pre-training for Neural Machine Translation",
        objective="repair damaged text in many languages",
        parent="BART",
    ),
    keys=KEYS,
    ignored={
        **bart.IGNORED,
        "extra_pos_embeddings": "always two",
        "do_blenderbot_90_layernorm": "for another family",
        "force_bos_token_to_be_generated": "for whoever generates",
    },
    kinds=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "MBartModel": Architecture(head=lambda _: None),
        "MBartForConditionalGeneration": Architecture(base="model.", head=bart.words, weights=(OUTPUT, BIAS)),
        "MBartForSequenceClassification": Architecture(base="model.", head=bart.sentence, weights=bart.CLASSIFIER),
        "MBartForQuestionAnswering": Architecture(
            base="model.", head=lambda _: Span(labels=2, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
        "MBartForCausalLM": Architecture(
            base="model.",
            head=lambda theirs: bart.words(theirs, OutputBias.NONE),
            weights=(OUTPUT,),
            network=decoder_alone,
        ),
    },
    presets={
        "mbart-large": {
            "architectures": ["MBartForConditionalGeneration"],
            **dict(vocab_size=250027, scale_embedding=True),
        },
    },
)
