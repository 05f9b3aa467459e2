"""CTRL (Keskar et al. 2019): a large decoder conditioned on a control code at the start of the text.

Pre-norm, sinusoidal positions with scaled embeddings, ReLU, and a tied output projection with a bias. Only the epsilon
of the final norm is configurable; no dropout is applied to the attention weights.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    is_tied,
    label_keys,
    output_weights,
)
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Activation,
    Apart,
    Attention,
    Block,
    Classification,
    DecoderOnly,
    Dense,
    Embedding,
    Head,
    LanguageModel,
    LayerNorm,
    Layout,
    Normal,
    NormOrder,
    OutputBias,
    Pooling,
    Sinusoidal,
    Stack,
    Tokens,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 246534,
    "n_positions": 256,
    "n_embd": 1280,
    "dff": 8192,
    "n_layer": 48,
    "n_head": 16,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-6,
    "initializer_range": 0.02,
    "pad_token_id": OptionalKey(int),
    "tie_word_embeddings": True,
}


def network(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the network config of a published config."""
    head_dim, dropout = theirs.head_dim("n_embd", "n_head"), theirs["resid_pdrop"]
    block = Block(
        attention=Attention(
            heads=theirs["n_head"],
            key_value_heads=theirs["n_head"],
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=True,
            output_bias=True,
            position=None,
            output_dropout=dropout,
        ),
        cross_attention=None,
        feedforward=Dense(dim=theirs["dff"], activation=Activation.RELU, bias=True, output_dropout=dropout),
        norm=LayerNorm(epsilon=1e-6),
        order=NormOrder.PRE,
        mask=Everything(),
    )
    return DecoderOnly(
        model_dim=theirs["n_embd"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["n_embd"],
            scale=theirs["n_embd"] ** 0.5,
            segments=0,
            position=Sinusoidal(layout=Layout.HALVES, length=theirs["n_positions"]),
            norm=None,
            projection=None,
            dropout=theirs["embd_pdrop"],
        ),
        decoder=Stack(
            layers=theirs["n_layer"],
            sharing=Apart(),
            blocks=(block,),
            mask=Causal(),
            position=None,
            memory=None,
            final_norm=LayerNorm(epsilon=theirs["layer_norm_epsilon"]),
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, initialization = design.decoder.blocks[0], design.initialization
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "n_positions": design.embedding.position.length,  # type: ignore[union-attr]
        "n_embd": design.model_dim,
        "dff": block.feedforward.dim,
        "n_layer": design.decoder.layers,
        "n_head": block.attention.heads,
        "resid_pdrop": block.attention.output_dropout,
        "embd_pdrop": design.embedding.dropout,
        "layer_norm_epsilon": design.decoder.final_norm.epsilon,  # type: ignore[union-attr]
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the causal language-model head."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=None,
        scale=1.0,
        weights=output_weights(theirs),
        bias=OutputBias.LEARNT,
    )


BLOCK = "decoder.blocks.#"
WEIGHTS = (
    Entry("@w", "embedding.tokens"),
    Entry("@h.#.layernorm1", f"{BLOCK}.attention_residual.norm"),
    Entry("@h.#.multi_head_attention.Wq", f"{BLOCK}.attention.project.query"),
    Entry("@h.#.multi_head_attention.Wk", f"{BLOCK}.attention.project.key"),
    Entry("@h.#.multi_head_attention.Wv", f"{BLOCK}.attention.project.value"),
    Entry("@h.#.multi_head_attention.dense", f"{BLOCK}.attention.output"),
    Entry("@h.#.layernorm2", f"{BLOCK}.feedforward_residual.norm"),
    Entry("@h.#.ffn.0", f"{BLOCK}.feedforward.up"),
    Entry("@h.#.ffn.2", f"{BLOCK}.feedforward.down"),
    Entry("@layernorm", "decoder.final_norm"),
)

FAMILY = Family(
    name="ctrl",
    info=FamilyInfo(
        title="CTRL",
        year=2019,
        paper="Keskar et al., CTRL: A Conditional Transformer Language Model for Controllable Generation",
        objective="causal language modelling with control codes",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys={
        "attn_pdrop": "never used: no dropout on attention weights",
        "n_ctx": "older name of n_positions, which is also present",
        "from_tf": "provenance only",
        **dict.fromkeys(
            [
                *["summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout"],
                "summary_proj_to_labels",
            ],
            "for a head that CTRL does not have",
        ),
    },
    ignored_weights={"@pos_encoding": "sinusoidal table, which is computed"},
    network_types=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "CTRLModel": Architecture(head=lambda _: None),
        "CTRLLMHeadModel": Architecture(
            prefix="transformer.",
            head=language_model_head,
            weights=(Entry("lm_head", "head.output"), Entry("lm_head", "head")),
        ),
        "CTRLForSequenceClassification": Architecture(
            prefix="transformer.",
            head=lambda t: Classification(labels=t.num_labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("classifier", "head.output"),),
        ),
    },
    presets={"ctrl": {"architectures": ["CTRLLMHeadModel"], "n_positions": 50000}},
)
