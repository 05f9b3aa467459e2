"""mBART (Liu et al. 2020): multilingual BART; each text ends with its language code.

BART with pre-norm and a final norm after each stack; the norm after the embedding stays.
"""

from dataclasses import replace
from typing import Any

from regard.families import bart
from regard.families.bart import LM_HEAD_WEIGHT, LOGITS_BIAS_WEIGHT, NORM
from regard.families.family import Architecture, Family, FamilyInfo, PublishedConfig
from regard.families.weight_map import Entry
from regard.transformer.config import DecoderOnly, EncoderDecoder, Head, NormOrder, OutputBias, Span, Stack

KEYS = {**bart.KEYS, "num_labels": 2, "normalize_before": True, "add_final_layer_norm": True}


def to_pre_norm(stack: Stack) -> Stack:
    """Change a BART stack from post-norm to pre-norm with a final norm."""
    return replace(stack, blocks=(replace(stack.blocks[0], order=NormOrder.PRE),), final_norm=NORM)


def to_bart_config(theirs: PublishedConfig) -> PublishedConfig:
    """Return the same config with BART's keys."""
    theirs.require("normalize_before", True)
    theirs.require("add_final_layer_norm", True)
    values = {key: theirs[key] for key in bart.KEYS}
    return PublishedConfig({**values, "normalize_before": False, "add_final_layer_norm": False}, bart.FAMILY)


def network(theirs: PublishedConfig, head: Head | None) -> EncoderDecoder:
    """Return the network config of a published config."""
    design = bart.network(to_bart_config(theirs), head)
    return replace(design, encoder=to_pre_norm(design.encoder), decoder=to_pre_norm(design.decoder))


def decoder_only(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the config of the decoder without its encoder."""
    design = bart.decoder_only(to_bart_config(theirs), head)
    return replace(design, decoder=to_pre_norm(design.decoder))


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    return bart.describe(design)


def weights(design: EncoderDecoder | DecoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the network (without its head)."""
    return (
        *bart.weights(design),
        Entry("@encoder.layer_norm", "encoder.final_norm"),
        Entry("@decoder.layer_norm", "decoder.final_norm"),
    )


FAMILY = Family(
    name="mbart",
    info=FamilyInfo(
        title="mBART",
        year=2020,
        paper="Liu et al., Multilingual Denoising Pre-training for Neural Machine Translation",
        objective="multilingual denoising",
        parent="BART",
    ),
    keys=KEYS,
    ignored_keys={
        **bart.BART_IGNORED_KEYS,
        "extra_pos_embeddings": "always two",
        "do_blenderbot_90_layernorm": "for another family",
        "force_bos_token_to_be_generated": "generation setting",
    },
    network_types=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "MBartModel": Architecture(head=lambda _: None),
        "MBartForConditionalGeneration": Architecture(
            prefix="model.", head=bart.language_model_head, weights=(LM_HEAD_WEIGHT, LOGITS_BIAS_WEIGHT)
        ),
        "MBartForSequenceClassification": Architecture(
            prefix="model.", head=bart.classification_head, weights=bart.CLASSIFIER_WEIGHTS
        ),
        "MBartForQuestionAnswering": Architecture(
            prefix="model.", head=lambda _: Span(labels=2, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
        "MBartForCausalLM": Architecture(
            prefix="model.",
            head=lambda theirs: bart.language_model_head(theirs, OutputBias.NONE),
            weights=(LM_HEAD_WEIGHT,),
            network=decoder_only,
        ),
    },
    presets={
        "mbart-large": {
            "architectures": ["MBartForConditionalGeneration"],
            **dict(vocab_size=250027, scale_embedding=True),
        },
    },
)
