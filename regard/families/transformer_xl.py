"""Transformer-XL (Dai et al. 2019): a decoder with segment-level recurrence.

Relative attention by content and distance, a memory of hidden states that starts as zeros, adaptive input embeddings
and adaptive softmax. Its head outputs log-probabilities. The current release of transformers no longer includes it; the
tests compare with stored outputs of an old release.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    label_keys,
)
from regard.families.weight_map import Entry, FusedQKV
from regard.transformer.config import (
    Activation,
    AdaptiveLanguageModel,
    AdaptiveTokens,
    Apart,
    Attention,
    Begin,
    Block,
    Classification,
    DecoderOnly,
    Dense,
    Embedding,
    Head,
    LayerNorm,
    Normal,
    NormOrder,
    Pooling,
    Recurrence,
    Relative,
    RelativeWaves,
    Stack,
    Weights,
)
from regard.transformer.mask import Band, Causal, Everything

KEYS = {
    "vocab_size": 267735,
    "cutoffs": [20000, 40000, 200000],
    "d_model": 1024,
    "d_embed": 1024,
    "n_head": 16,
    "d_head": 64,
    "d_inner": 4096,
    "div_val": 4,
    "pre_lnorm": False,
    "n_layer": 18,
    "mem_len": 1600,
    "clamp_len": OptionalKey(int, 1000, minimum=-1),
    "same_length": True,
    "proj_share_all_but_first": True,
    "tie_projs": OptionalKey(list),
    "attn_type": 0,
    "sample_softmax": -1,
    "dropout": 0.1,
    "dropatt": 0.0,
    "untie_r": True,
    "init_std": 0.02,
    "layer_norm_epsilon": 1e-5,
    "pad_token_id": OptionalKey(int),
    "tie_word_embeddings": True,
}


def network(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the network config of a published config."""
    theirs.require("pre_lnorm", False)
    theirs.require("untie_r", True)
    theirs.require("attn_type", 0)
    if theirs["div_val"] < 2 or theirs["sample_softmax"] > 0 or theirs["mem_len"] < 1:
        raise ConfigError(
            "config.json: transfo-xl is supported only with div_val > 1, mem_len > 0 and no sampled softmax"
        )
    dropout, memory = theirs["dropout"], theirs["mem_len"]
    block = Block(
        attention=Attention(
            heads=theirs["n_head"],
            key_value_heads=theirs["n_head"],
            head_dim=theirs["d_head"],
            scale=theirs["d_head"] ** -0.5,
            bias=False,
            output_bias=False,
            position=Relative(),
            dropout=theirs["dropatt"],
            output_dropout=dropout,
        ),
        cross_attention=None,
        feedforward=Dense(
            dim=theirs["d_inner"], activation=Activation.RELU, bias=True, dropout=dropout, output_dropout=dropout
        ),
        norm=LayerNorm(epsilon=theirs["layer_norm_epsilon"]),
        order=NormOrder.POST,
        mask=Band(width=memory) if theirs["same_length"] else Everything(),
    )
    return DecoderOnly(
        model_dim=theirs["d_model"],
        embedding=Embedding(
            tokens=AdaptiveTokens(
                vocabulary=theirs["vocab_size"],
                cutoffs=tuple(theirs["cutoffs"]),
                dim=theirs["d_embed"],
                divisor=theirs["div_val"],
                padding=theirs["pad_token_id"],
            ),
            dim=theirs["d_model"],
            scale=theirs["d_model"] ** 0.5,
            segments=0,
            position=None,
            norm=None,
            projection=None,
            dropout=dropout,
        ),
        decoder=Stack(
            layers=theirs["n_layer"],
            sharing=Apart(),
            blocks=(block,),
            mask=Causal(),
            position=RelativeWaves(farthest=theirs["clamp_len"] if theirs["clamp_len"] > 0 else None, dropout=dropout),
            memory=Recurrence(length=memory, begin=Begin.ZEROS),
            final_norm=None,
            final_dropout=dropout,
        ),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, tokens, head = design.decoder.blocks[0], design.embedding.tokens, design.head
    initialization = design.initialization
    adaptive = head if isinstance(head, AdaptiveLanguageModel) else None
    keys = {
        "vocab_size": tokens.vocabulary,  # type: ignore[union-attr]
        "cutoffs": list(tokens.cutoffs),  # type: ignore[union-attr]
        "d_model": design.model_dim,
        "d_embed": tokens.dim,  # type: ignore[union-attr]
        "n_head": block.attention.heads,
        "d_head": block.attention.head_dim,
        "d_inner": block.feedforward.dim,
        "div_val": tokens.divisor,  # type: ignore[union-attr]
        "n_layer": design.decoder.layers,
        "mem_len": design.decoder.memory.length,  # type: ignore[union-attr]
        "clamp_len": design.decoder.position.farthest or -1,  # type: ignore[union-attr]
        "same_length": isinstance(block.mask, Band),
        "dropout": design.embedding.dropout,
        "dropatt": block.attention.dropout,
        "init_std": initialization.deviation if isinstance(initialization, Normal) else KEYS["init_std"],
        "layer_norm_epsilon": block.norm.epsilon,
        "pad_token_id": tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": adaptive is None or adaptive.tables is Weights.TIED,
        **label_keys(design),
    }
    if adaptive is not None:
        keys["tie_projs"] = [tie is Weights.TIED for tie in adaptive.projections]
    return keys


def language_model_head(theirs: PublishedConfig) -> AdaptiveLanguageModel:
    """Return the config of the adaptive-softmax head. By default only the first cluster's projection is untied."""
    tie_projections = theirs["tie_projs"]
    if tie_projections is None:
        tie_projections = [False] + [theirs["proj_share_all_but_first"]] * len(theirs["cutoffs"])
    return AdaptiveLanguageModel(
        tables=Weights.TIED if theirs["tie_word_embeddings"] else Weights.OWN,
        projections=tuple(Weights.TIED if tie else Weights.OWN for tie in tie_projections),
    )


BLOCK = "decoder.blocks.#"
WEIGHTS = (
    Entry("@word_emb.emb_layers.#", "embedding.tokens.tables.#"),
    Entry("@word_emb.emb_projs.#", "embedding.tokens.projections.#.weight", exact=True),
    Entry(
        "@layers.#.dec_attn.qkv_net",
        tuple(f"{BLOCK}.attention.project.{part}" for part in ("query", "key", "value")),
        FusedQKV(),
    ),
    Entry("@layers.#.dec_attn.r_net", f"{BLOCK}.attention.relative.project"),
    Entry("@layers.#.dec_attn.r_w_bias", f"{BLOCK}.attention.relative.content", exact=True),
    Entry("@layers.#.dec_attn.r_r_bias", f"{BLOCK}.attention.relative.distance", exact=True),
    Entry("@layers.#.dec_attn.o_net", f"{BLOCK}.attention.output"),
    Entry("@layers.#.dec_attn.layer_norm", f"{BLOCK}.attention_residual.norm"),
    Entry("@layers.#.pos_ff.CoreNet.0", f"{BLOCK}.feedforward.up"),
    Entry("@layers.#.pos_ff.CoreNet.3", f"{BLOCK}.feedforward.down"),
    Entry("@layers.#.pos_ff.layer_norm", f"{BLOCK}.feedforward_residual.norm"),
)
LANGUAGE_MODEL_WEIGHTS = (
    Entry("crit.out_layers.#.weight", "head.tables.#.weight", exact=True),
    Entry("crit.out_layers.#.bias", "head.biases.#", exact=True),
    Entry("crit.out_projs.#", "head.projections.#.weight", exact=True),
    Entry("crit.cluster_weight", "head.step_weight", exact=True),
    Entry("crit.cluster_bias", "head.step_bias", exact=True),
)

FAMILY = Family(
    name="transfo-xl",
    info=FamilyInfo(
        title="Transformer-XL",
        year=2019,
        paper="Dai et al., Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
        objective="causal language modelling with segment recurrence",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys={
        **dict.fromkeys(["adaptive", "tie_weight", "n_token"], "never used"),
        **dict.fromkeys(["tgt_len", "ext_len"], "segmentation setting"),
        **dict.fromkeys(["init", "init_range", "proj_init_std"], "initialization of the published training"),
    },
    ignored_weights={"@pos_emb.inv_freq": "inverse frequencies, which are computed"},
    network_types=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "TransfoXLModel": Architecture(head=lambda _: None),
        "TransfoXLLMHeadModel": Architecture(
            prefix="transformer.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS
        ),
        "TransfoXLForSequenceClassification": Architecture(
            prefix="transformer.",
            head=lambda t: Classification(labels=t.num_labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("score", "head.output"),),
        ),
    },
    presets={"transfo-xl-wt103": {"architectures": ["TransfoXLLMHeadModel"]}},
)
