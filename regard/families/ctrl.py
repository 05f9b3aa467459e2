"""CTRL (Keskar et al. 2019): a large decoder that is steered by a control code at the start of the text.

Pre-norm, the 2017 paper's waves beside scaled embeddings, ReLU, and a last layer that is tied but has a bias. Only the
final norm's epsilon can be set; no attention weight is ever dropped out.
"""

from typing import Any

from regard.families.family import Architecture, Family, Maybe, Story, Theirs, is_tied, labels, tied
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
    "pad_token_id": Maybe(int),
    "tie_word_embeddings": True,
}


def network(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The network of a config."""
    size, rate = theirs.divide("n_embd", "n_head"), theirs["resid_pdrop"]
    block = Block(
        attention=Attention(
            heads=theirs["n_head"],
            key_value_heads=theirs["n_head"],
            head_dim=size,
            scale=size**-0.5,
            bias=True,
            output_bias=True,
            position=None,
            output_dropout=rate,
        ),
        cross_attention=None,
        feedforward=Dense(dim=theirs["dff"], activation=Activation.RELU, bias=True, output_dropout=rate),
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
    """The config of a network."""
    block, start = design.decoder.blocks[0], design.initialization
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
        "initializer_range": start.deviation if isinstance(start, Normal) else KEYS["initializer_range"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        **labels(design),
    }


def words(theirs: Theirs) -> LanguageModel:
    """The head that continues text."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=tied(theirs), bias=OutputBias.LEARNT
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
    story=Story(
        title="CTRL",
        year=2019,
        paper="Keskar et al., CTRL: A Conditional Transformer Language Model for Controllable Generation",
        objective="continue the text after a control code",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored={
        "attn_pdrop": "never used: attention weights are not dropped out",
        "n_ctx": "an older name of n_positions, which is there too",
        "from_tf": "says where the weights came from",
        **dict.fromkeys(
            [
                "summary_type",
                "summary_use_proj",
                "summary_activation",
                "summary_first_dropout",
                "summary_proj_to_labels",
            ],
            "for a head that does not exist",
        ),
    },
    ignored_weights={"@pos_encoding": "sines and cosines, which are computed"},
    kinds=(DecoderOnly,),
    network=network,
    describe=describe,
    weights=lambda _: WEIGHTS,
    architectures={
        "CTRLModel": Architecture(head=lambda _: None),
        "CTRLLMHeadModel": Architecture(
            base="transformer.",
            head=words,
            weights=(Entry("lm_head", "head.output"), Entry("lm_head", "head")),
        ),
        "CTRLForSequenceClassification": Architecture(
            base="transformer.",
            head=lambda t: Classification(labels=t.labels, pooling=Pooling.LAST, transform=None, bias=False),
            weights=(Entry("classifier", "head.output"),),
        ),
    },
    presets={"ctrl": {"architectures": ["CTRLLMHeadModel"], "n_positions": 50000}},
)
