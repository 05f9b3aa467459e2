"""BART (Lewis et al. 2019): an encoder-decoder trained to repair damaged text.

The 2017 Transformer with learned positions (the first two unused), a norm after the embedding, and GELU. Its way of
naming weights is also Marian's.
"""

from typing import Any

from regard.families.family import Architecture, Family, Story, Theirs, activation_name, is_tied, labels, tied
from regard.families.weight_map import AsRow, Entry
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
    # Older configs spell out what is always so.
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "static_position_embeddings": False,
}

IGNORED = {
    "num_hidden_layers": "repeats encoder_layers",
    "num_attention_heads": "repeats encoder_attention_heads",
    "hidden_size": "repeats d_model",
    "is_decoder": "the architecture's name says it",
    "classif_dropout": "an older name of classifier_dropout, which is there too",
    "max_position_embeddings_offset": "always two",
}

NORM = LayerNorm(epsilon=1e-5)


def stack(theirs: Theirs, side: str, across: bool) -> Stack:
    """The encoder's blocks, or the decoder's."""
    size = theirs.divide("d_model", f"{side}_attention_heads")
    attention = Attention(
        heads=theirs[f"{side}_attention_heads"],
        key_value_heads=theirs[f"{side}_attention_heads"],
        head_dim=size,
        scale=size**-0.5,
        bias=True,
        output_bias=True,
        position=None,
        dropout=theirs["attention_dropout"],
        output_dropout=theirs["dropout"],
    )
    block = Block(
        attention=attention,
        cross_attention=attention if across else None,
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


def embedding(theirs: Theirs, tokens: Tokens | SourceTokens) -> Embedding:
    """Of the source, or of the target."""
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


def require(theirs: Theirs) -> None:
    """What older configs spell out must be what it always is."""
    for key in ("normalize_before", "add_final_layer_norm", "add_bias_logits", "static_position_embeddings"):
        theirs.require(key, False)
    theirs.require("normalize_embedding", True)


def network(theirs: Theirs, head: Head | None) -> EncoderDecoder:
    """The network of a config."""
    require(theirs)
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        target=embedding(theirs, SourceTokens()),
        encoder=stack(theirs, "encoder", across=False),
        decoder=stack(theirs, "decoder", across=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def decoder_alone(theirs: Theirs, head: Head | None) -> DecoderOnly:
    """The decoder without its encoder. Its cross-attention is there, for whoever has something to attend to."""
    require(theirs)
    return DecoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])),
        decoder=stack(theirs, "decoder", across=True),
        head=head,
        initialization=Normal(deviation=theirs["init_std"]),
    )


def describe(design: EncoderDecoder | DecoderOnly) -> dict[str, Any]:
    """The config of a network."""
    both = isinstance(design, EncoderDecoder)
    source = design.source if isinstance(design, EncoderDecoder) else design.embedding
    reads = design.encoder if isinstance(design, EncoderDecoder) else design.decoder
    writes = design.decoder
    one, other, start = reads.blocks[0], writes.blocks[0], design.initialization
    return {
        "vocab_size": source.tokens.vocabulary,  # type: ignore[union-attr]
        "max_position_embeddings": source.position.length,  # type: ignore[union-attr]
        "encoder_layers": reads.layers,
        "encoder_ffn_dim": one.feedforward.dim,
        "encoder_attention_heads": one.attention.heads,
        "decoder_layers": writes.layers,
        "decoder_ffn_dim": other.feedforward.dim,
        "decoder_attention_heads": other.attention.heads,
        "encoder_layerdrop": reads.layer_dropout,
        "decoder_layerdrop": writes.layer_dropout,
        "activation_function": activation_name(one.feedforward.activation),
        "d_model": design.model_dim,
        "dropout": source.dropout,
        "attention_dropout": one.attention.dropout,
        "activation_dropout": one.feedforward.dropout,
        "classifier_dropout": getattr(design.head, "dropout", 0.0),
        "init_std": start.deviation if isinstance(start, Normal) else KEYS["init_std"],
        "scale_embedding": source.scale != 1.0,
        "pad_token_id": source.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        "is_encoder_decoder": both,
        **labels(design),
    }


def words(theirs: Theirs, bias: OutputBias = OutputBias.FIXED) -> LanguageModel:
    """The head that writes."""
    return LanguageModel(vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=tied(theirs), bias=bias)


def sentence(theirs: Theirs) -> Classification:
    """A head that scores the whole text by the decoder's last vector, when the decoder has read the source again."""
    return Classification(
        labels=theirs.labels,
        pooling=Pooling.LAST,
        transform=Transform(activation=Activation.TANH, norm=None),
        bias=True,
        input_dropout=theirs["classifier_dropout"],
        dropout=theirs["classifier_dropout"],
    )


def attention_weights(theirs: str, ours: str) -> tuple[Entry, ...]:
    """One attention."""
    parts = {"q_proj": "project.query", "k_proj": "project.key", "v_proj": "project.value", "out_proj": "output"}
    return tuple(Entry(f"{theirs}.{one}", f"{ours}.{other}") for one, other in parts.items())


def block_weights(side: str) -> tuple[Entry, ...]:
    """The blocks of the encoder, or of the decoder."""
    theirs, ours = f"@{side}.layers.#", f"{side}.blocks.#"
    across = (
        *attention_weights(f"{theirs}.encoder_attn", f"{ours}.cross_attention"),
        Entry(f"{theirs}.encoder_attn_layer_norm", f"{ours}.cross_attention_residual.norm"),
    )
    return (
        *attention_weights(f"{theirs}.self_attn", f"{ours}.attention"),
        Entry(f"{theirs}.self_attn_layer_norm", f"{ours}.attention_residual.norm"),
        *(across if side == "decoder" else ()),
        Entry(f"{theirs}.fc1", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.fc2", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.final_layer_norm", f"{ours}.feedforward_residual.norm"),
    )


def weights(design: EncoderDecoder | DecoderOnly) -> tuple[Entry, ...]:
    """Where the network's weights stand. The first of several names for one thing is the one that is written."""
    if isinstance(design, DecoderOnly):
        return (
            Entry("@decoder.embed_tokens", "embedding.tokens"),
            Entry("@decoder.embed_positions", "embedding.position"),
            Entry("@decoder.layernorm_embedding", "embedding.norm"),
            *block_weights("decoder"),
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
        *block_weights("encoder"),
        *block_weights("decoder"),
    )


CLASSIFIER = (
    Entry("classification_head.dense", "head.transform.dense"),
    Entry("classification_head.out_proj", "head.output"),
)
OUTPUT = Entry("lm_head", "head.output")
BIAS = Entry("final_logits_bias", "head.bias", AsRow(), exact=True)

FAMILY = Family(
    name="bart",
    story=Story(
        title="BART",
        year=2019,
        paper="Lewis et al., BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
        "Translation, and Comprehension",
        objective="repair damaged text",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored=IGNORED,
    kinds=(EncoderDecoder, DecoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "BartModel": Architecture(head=lambda _: None),
        "BartForConditionalGeneration": Architecture(base="model.", head=words, weights=(OUTPUT, BIAS)),
        "BartForSequenceClassification": Architecture(
            base="model.",
            head=sentence,
            weights=CLASSIFIER,
        ),
        "BartForQuestionAnswering": Architecture(
            base="model.", head=lambda _: Span(labels=2, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
        "BartForCausalLM": Architecture(
            base="model.",
            head=lambda theirs: words(theirs, OutputBias.NONE),
            weights=(OUTPUT,),
            network=decoder_alone,
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
