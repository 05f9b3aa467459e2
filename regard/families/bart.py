"""BART (Lewis et al. 2019): an encoder-decoder pretrained by denoising corrupted text.

The 2017 Transformer with learned positions (the first two unused), a norm after the embedding, and GELU. Marian uses
the same weight names.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    Family,
    FamilyInfo,
    PublishedConfig,
    activation_name,
    is_tied,
    label_keys,
    output_weights,
)
from regard.families.weight_map import Entry, Unsqueeze
from regard.transformer.config import (
    Activation,
    Apart,
    Attention,
    Block,
    Classification,
    DecoderOnly,
    Dense,
    Embedding,
    EncoderDecoder,
    Head,
    LanguageModel,
    LayerNorm,
    Learned,
    Normal,
    NormOrder,
    OutputBias,
    Pooling,
    SourceTokens,
    Span,
    Stack,
    Tokens,
    Transform,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 50265,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "classifier_dropout": 0.0,
    "init_std": 0.02,
    "scale_embedding": False,
    "pad_token_id": 1,
    "tie_word_embeddings": True,
    "num_labels": 3,
    # Older configs write these keys explicitly; only these values are supported.
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": False,
}

BART_IGNORED_KEYS = {
    "num_hidden_layers": "repeats encoder_layers",
    "num_attention_heads": "repeats encoder_attention_heads",
    "hidden_size": "repeats d_model",
    "is_decoder": "implied by the architecture",
    "classif_dropout": "older name of classifier_dropout, which is also present",
    "max_position_embeddings_offset": "always two",
}

NORM = LayerNorm(epsilon=1e-5)


def stack(theirs: PublishedConfig, side: str, cross_attention: bool) -> Stack:
    """Return the config of the encoder or decoder stack (`side` is "encoder" or "decoder")."""
    head_dim = theirs.head_dim("d_model", f"{side}_attention_heads")
    attention = Attention(
        heads=theirs[f"{side}_attention_heads"],
        key_value_heads=theirs[f"{side}_attention_heads"],
        head_dim=head_dim,
        scale=head_dim**-0.5,
        bias=True,
        output_bias=True,
        position=None,
        dropout=theirs["attention_dropout"],
        output_dropout=theirs["dropout"],
    )
    block = Block(
        attention=attention,
        cross_attention=attention if cross_attention else None,
        feedforward=Dense(
            dim=theirs[f"{side}_ffn_dim"],
            activation=theirs.activation("activation_function"),
            bias=True,
            dropout=theirs["activation_dropout"],
            output_dropout=theirs["dropout"],
        ),
        norm=NORM,
        order=NormOrder.POST,
        mask=Everything(),
    )
    return Stack(
        layers=theirs[f"{side}_layers"],
        sharing=Apart(),
        blocks=(block,),
        mask=Causal() if side == "decoder" else Everything(),
        position=None,
        memory=None,
        final_norm=None,
        layer_dropout=theirs[f"{side}_layerdrop"],
    )


def embedding(theirs: PublishedConfig, tokens: Tokens | SourceTokens) -> Embedding:
    """Return the config of the source or target embedding."""
    return Embedding(
        tokens=tokens,
        dim=theirs["d_model"],
        scale=theirs["d_model"] ** 0.5 if theirs["scale_embedding"] else 1.0,
        segments=0,
        position=Learned(length=theirs["max_position_embeddings"], offset=2),
        norm=NORM,
        projection=None,
        dropout=theirs["dropout"],
    )


def check_legacy_keys(theirs: PublishedConfig) -> None:
    """Reject older configs whose explicit values differ from the only supported ones."""
    for key in ("normalize_before", "add_final_layer_norm", "add_bias_logits", "static_position_embeddings"):
        theirs.require(key, False)
    theirs.require("normalize_embedding", True)


def network(theirs: PublishedConfig, head: Head | None) -> EncoderDecoder:
    """Return the network config of a published config."""
    check_legacy_keys(theirs)
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        target=embedding(theirs, SourceTokens()),
        encoder=stack(theirs, "encoder", cross_attention=False),
        decoder=stack(theirs, "decoder", cross_attention=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def decoder_only(theirs: PublishedConfig, head: Head | None) -> DecoderOnly:
    """Return the config of the decoder without its encoder. Cross-attention is kept, for an external encoder output."""
    check_legacy_keys(theirs)
    return DecoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        decoder=stack(theirs, "decoder", cross_attention=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    source = design.source if isinstance(design, EncoderDecoder) else design.embedding
    encoder = design.encoder if isinstance(design, EncoderDecoder) else design.decoder
    decoder = design.decoder
    encoder_block, decoder_block, initialization = encoder.blocks[0], decoder.blocks[0], design.initialization
    return {
        "vocab_size": source.tokens.vocabulary,  # type: ignore[union-attr]
        "max_position_embeddings": source.position.length,  # type: ignore[union-attr]
        "encoder_layers": encoder.layers,
        "encoder_ffn_dim": encoder_block.feedforward.dim,
        "encoder_attention_heads": encoder_block.attention.heads,
        "decoder_layers": decoder.layers,
        "decoder_ffn_dim": decoder_block.feedforward.dim,
        "decoder_attention_heads": decoder_block.attention.heads,
        "encoder_layerdrop": encoder.layer_dropout,
        "decoder_layerdrop": decoder.layer_dropout,
        "activation_function": activation_name(encoder_block.feedforward.activation),
        "d_model": design.model_dim,
        "dropout": source.dropout,
        "attention_dropout": encoder_block.attention.dropout,
        "activation_dropout": encoder_block.feedforward.dropout,
        "classifier_dropout": getattr(design.head, "dropout", 0.0),
        "init_std": initialization.deviation if isinstance(initialization, Normal) else KEYS["init_std"],
        "scale_embedding": source.scale != 1.0,
        "pad_token_id": source.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        "is_encoder_decoder": isinstance(design, EncoderDecoder),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig, bias: OutputBias = OutputBias.FIXED) -> LanguageModel:
    """Return the config of the sequence-to-sequence language-model head."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=output_weights(theirs), bias=bias
    )


def classification_head(theirs: PublishedConfig) -> Classification:
    """Return the config of the sequence-classification head on the decoder's last token (it reads the source)."""
    return Classification(
        labels=theirs.num_labels,
        pooling=Pooling.LAST,
        transform=Transform(activation=Activation.TANH, norm=None),
        bias=True,
        input_dropout=theirs["classifier_dropout"],
        dropout=theirs["classifier_dropout"],
    )


def attention_entries(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the weight map of one attention layer."""
    names = {"q_proj": "project.query", "k_proj": "project.key", "v_proj": "project.value", "out_proj": "output"}
    return tuple(Entry(f"{theirs}.{name}", f"{ours}.{our_name}") for name, our_name in names.items())


def block_entries(side: str) -> tuple[Entry, ...]:
    """Return the weight map of the blocks of the encoder or decoder."""
    theirs, ours = f"@{side}.layers.#", f"{side}.blocks.#"
    cross_attention_entries = (
        *attention_entries(f"{theirs}.encoder_attn", f"{ours}.cross_attention"),
        Entry(f"{theirs}.encoder_attn_layer_norm", f"{ours}.cross_attention_residual.norm"),
    )
    return (
        *attention_entries(f"{theirs}.self_attn", f"{ours}.attention"),
        Entry(f"{theirs}.self_attn_layer_norm", f"{ours}.attention_residual.norm"),
        *(cross_attention_entries if side == "decoder" else ()),
        Entry(f"{theirs}.fc1", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.fc2", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.final_layer_norm", f"{ours}.feedforward_residual.norm"),
    )


def weights(design: EncoderDecoder | DecoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the network. Of several names for one parameter, `save` writes the first."""
    if isinstance(design, DecoderOnly):
        return (
            Entry("@decoder.embed_tokens", "embedding.tokens"),
            Entry("@decoder.embed_positions", "embedding.position"),
            Entry("@decoder.layernorm_embedding", "embedding.norm"),
            *block_entries("decoder"),
        )
    shared = (Entry("@shared", "source.tokens"),) if isinstance(design.target.tokens, SourceTokens) else ()
    return (
        *shared,
        Entry("@encoder.embed_tokens", "source.tokens"),
        Entry("@decoder.embed_tokens", "target.tokens"),
        Entry("@encoder.embed_positions", "source.position"),
        Entry("@decoder.embed_positions", "target.position"),
        Entry("@encoder.layernorm_embedding", "source.norm"),
        Entry("@decoder.layernorm_embedding", "target.norm"),
        *block_entries("encoder"),
        *block_entries("decoder"),
    )


CLASSIFIER_WEIGHTS = (
    Entry("classification_head.dense", "head.transform.dense"),
    Entry("classification_head.out_proj", "head.output"),
)
LM_HEAD_WEIGHT = Entry("lm_head", "head.output")
LOGITS_BIAS_WEIGHT = Entry("final_logits_bias", "head.bias", Unsqueeze(), exact=True)

FAMILY = Family(
    name="bart",
    info=FamilyInfo(
        title="BART",
        year=2019,
        paper="Lewis et al., BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
        "Translation, and Comprehension",
        objective="denoising",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys=BART_IGNORED_KEYS,
    network_types=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "BartModel": Architecture(head=lambda _: None),
        "BartForConditionalGeneration": Architecture(
            prefix="model.", head=language_model_head, weights=(LM_HEAD_WEIGHT, LOGITS_BIAS_WEIGHT)
        ),
        "BartForSequenceClassification": Architecture(
            prefix="model.",
            head=classification_head,
            weights=CLASSIFIER_WEIGHTS,
        ),
        "BartForQuestionAnswering": Architecture(
            prefix="model.", head=lambda _: Span(labels=2, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
        "BartForCausalLM": Architecture(
            prefix="model.",
            head=lambda theirs: language_model_head(theirs, OutputBias.NONE),
            weights=(LM_HEAD_WEIGHT,),
            network=decoder_only,
        ),
    },
    presets={
        "bart-base": {
            "architectures": ["BartForConditionalGeneration"],
            **dict(d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072),
            **dict(encoder_attention_heads=12, decoder_attention_heads=12, dropout=0.1, attention_dropout=0.1),
            **dict(activation_dropout=0.1),
        },
        "bart-large": {"architectures": ["BartForConditionalGeneration"], "activation_dropout": 0.1},
    },
)
