"""T5 (Raffel et al. 2019): every task as text to text. Versions 1.0, and 1.1, which Flan-T5 and mT5 follow.

Pre-norm with RMSNorm, no biases, unscaled attention scores, and relative position biases: one learned number per head
and distance bucket, shared by all blocks of a stack. 1.1 has a gated feed-forward layer and an untied output
projection.
"""

from typing import Any

from regard.families.bart import CLASSIFIER_WEIGHTS, classification_head
from regard.families.family import (
    Architecture,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    activation_name,
    is_tied,
    label_keys,
)
from regard.families.weight_map import Entry
from regard.transformer.config import (
    Activation,
    Apart,
    Attention,
    Block,
    Dense,
    Embedding,
    EncoderDecoder,
    EncoderOnly,
    FanIn,
    Gated,
    Head,
    LanguageModel,
    NormOrder,
    OutputBias,
    RelativeBuckets,
    RMSNorm,
    SourceTokens,
    Span,
    Stack,
    Tagging,
    Tokens,
    Weights,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 32128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_decoder_layers": OptionalKey(int),
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "classifier_dropout": 0.0,
    "layer_norm_epsilon": 1e-6,
    "initializer_factor": 1.0,
    "feed_forward_proj": "relu",
    "pad_token_id": 0,
    "tie_word_embeddings": True,
    "scale_decoder_outputs": OptionalKey(bool),
}


def feedforward(theirs: PublishedConfig) -> Dense | Gated:
    """Return the config of the feed-forward layer: `relu`, or `gated-gelu`, where gelu means the tanh approximation."""
    kind, _, name = theirs["feed_forward_proj"].rpartition("-")
    activation = Activation.GELU_TANH if theirs["feed_forward_proj"] == "gated-gelu" else None
    if activation is None:
        activation = PublishedConfig({"feed_forward_proj": name}, FAMILY).activation("feed_forward_proj")
    dropout = theirs["dropout_rate"]
    layer = Gated if kind == "gated" else Dense
    return layer(dim=theirs["d_ff"], activation=activation, bias=False, dropout=dropout, output_dropout=dropout)


def stack(theirs: PublishedConfig, layers: int, decoder: bool) -> Stack:
    """Return the config of the encoder or decoder stack."""
    dropout, norm = theirs["dropout_rate"], RMSNorm(epsilon=theirs["layer_norm_epsilon"])
    attention = Attention(
        heads=theirs["num_heads"],
        key_value_heads=theirs["num_heads"],
        head_dim=theirs["d_kv"],
        scale=1.0,
        bias=False,
        output_bias=False,
        position=None,
        dropout=dropout,
        output_dropout=dropout,
    )
    block = Block(
        attention=attention,
        cross_attention=attention if decoder else None,
        feedforward=feedforward(theirs),
        norm=norm,
        order=NormOrder.PRE,
        mask=Everything(),
    )
    return Stack(
        layers=layers,
        sharing=Apart(),
        blocks=(block,),
        mask=Causal() if decoder else Everything(),
        position=RelativeBuckets(
            buckets=theirs["relative_attention_num_buckets"], distance=theirs["relative_attention_max_distance"]
        ),
        memory=None,
        final_norm=norm,
        final_dropout=dropout,
    )


def embedding(theirs: PublishedConfig, tokens: Tokens | SourceTokens) -> Embedding:
    """Return the config of the source or target embedding."""
    return Embedding(
        tokens=tokens,
        dim=theirs["d_model"],
        scale=1.0,
        segments=0,
        position=None,
        norm=None,
        projection=None,
        dropout=theirs["dropout_rate"],
    )


def tokens(theirs: PublishedConfig) -> Tokens:
    """Return the config of the shared token embedding."""
    return Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])


def network(theirs: PublishedConfig, head: Head | None) -> EncoderDecoder:
    """Return the network config of a published config."""
    decoder_layers = theirs["num_layers"] if theirs["num_decoder_layers"] is None else theirs["num_decoder_layers"]
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, tokens(theirs)),
        target=embedding(theirs, SourceTokens()),
        encoder=stack(theirs, theirs["num_layers"], decoder=False),
        decoder=stack(theirs, decoder_layers, decoder=True),
        head=head,
        initialization=FanIn(factor=theirs["initializer_factor"]),
    )


def encoder_only(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the config of the encoder without its decoder."""
    return EncoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, tokens(theirs)),
        encoder=stack(theirs, theirs["num_layers"], decoder=False),
        head=head,
        initialization=FanIn(factor=theirs["initializer_factor"]),
    )


def describe(design: EncoderDecoder | EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    source = design.source if isinstance(design, EncoderDecoder) else design.embedding
    block, initialization = design.encoder.blocks[0], design.initialization
    feedforward = block.feedforward
    name = activation_name(feedforward.activation)
    if isinstance(feedforward, Gated):
        name = "gated-gelu" if feedforward.activation is Activation.GELU_TANH else f"gated-{name}"
    keys = {
        "vocab_size": source.tokens.vocabulary,  # type: ignore[union-attr]
        "d_model": design.model_dim,
        "d_kv": block.attention.head_dim,
        "d_ff": feedforward.dim,
        "num_layers": design.encoder.layers,
        "num_decoder_layers": design.decoder.layers if isinstance(design, EncoderDecoder) else None,
        "num_heads": block.attention.heads,
        "relative_attention_num_buckets": design.encoder.position.buckets,  # type: ignore[union-attr]
        "relative_attention_max_distance": design.encoder.position.distance,  # type: ignore[union-attr]
        "dropout_rate": source.dropout,
        "classifier_dropout": getattr(design.head, "dropout", 0.0),
        "layer_norm_epsilon": block.norm.epsilon,
        "initializer_factor": initialization.factor
        if isinstance(initialization, FanIn)
        else KEYS["initializer_factor"],
        "feed_forward_proj": name,
        "pad_token_id": source.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        "is_encoder_decoder": isinstance(design, EncoderDecoder),
        **label_keys(design),
    }
    if isinstance(design.head, LanguageModel):
        keys["scale_decoder_outputs"] = design.head.scale != 1.0
    return keys


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the sequence-to-sequence language-model head.

    Its input is scaled if `scale_decoder_outputs` is set; in old configs, which lack this key, if the weights are tied.
    """
    scaled = theirs["scale_decoder_outputs"]
    if scaled is None:
        scaled = theirs["tie_word_embeddings"]
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=None,
        scale=theirs["d_model"] ** -0.5 if scaled else 1.0,
        weights=Weights.TIED if theirs["tie_word_embeddings"] else Weights.OWN,
        bias=OutputBias.NONE,
    )


def attention_entries(theirs: str, ours: str) -> tuple[Entry, ...]:
    """Return the weight map of one attention layer."""
    names = {"q": "project.query", "k": "project.key", "v": "project.value", "o": "output"}
    return tuple(Entry(f"{theirs}.{name}", f"{ours}.{our_name}") for name, our_name in names.items())


def block_entries(side: str, last: int, up: str) -> tuple[Entry, ...]:
    """Return the weight map of a stack. `last` is the index of the feed-forward sublayer, `up` its first weight."""
    theirs, ours = f"@{side}.block.#.layer", f"{side}.blocks.#"
    cross_attention_entries = (
        *attention_entries(f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention"),
        Entry(f"{theirs}.1.layer_norm", f"{ours}.cross_attention_residual.norm"),
    )
    return (
        *attention_entries(f"{theirs}.0.SelfAttention", f"{ours}.attention"),
        Entry(f"{theirs}.0.layer_norm", f"{ours}.attention_residual.norm"),
        *(cross_attention_entries if side == "decoder" else ()),
        Entry(f"{theirs}.{last}.DenseReluDense.{up}", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.{last}.DenseReluDense.wi_0", f"{ours}.feedforward.gate"),
        Entry(f"{theirs}.{last}.DenseReluDense.wo", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.{last}.layer_norm", f"{ours}.feedforward_residual.norm"),
        Entry(f"@{side}.block.0.layer.0.SelfAttention.relative_attention_bias", f"{side}.position"),
        Entry(f"@{side}.final_layer_norm", f"{side}.final_norm"),
    )


def weights(design: EncoderDecoder | EncoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the network. Of several names for one parameter, `save` writes the first."""
    up = "wi_1" if isinstance(design.encoder.blocks[0].feedforward, Gated) else "wi"
    encoder = block_entries("encoder", 1, up)
    if isinstance(design, EncoderOnly):
        tokens = "embedding.tokens"
        return (Entry("@shared", tokens), Entry("@encoder.embed_tokens", tokens), *encoder)
    return (
        Entry("@shared", "source.tokens"),
        Entry("@encoder.embed_tokens", "source.tokens"),
        Entry("@decoder.embed_tokens", "target.tokens"),
        *encoder,
        *block_entries("decoder", 2, up),
    )


def preset_keys(version_1_1: bool = False, **keys: Any) -> dict[str, Any]:
    """Return the keys of a preset of version 1.0 or 1.1."""
    changes = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return {"architectures": ["T5ForConditionalGeneration"], **keys, **(changes if version_1_1 else {})}


FAMILY = Family(
    name="t5",
    info=FamilyInfo(
        title="T5",
        year=2019,
        paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        objective="span corruption",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored_keys={
        "dense_act_fn": "follows from feed_forward_proj",
        "is_gated_act": "follows from feed_forward_proj",
        "is_decoder": "implied by the architecture",
        "n_positions": "sequence length of pretraining; T5 has no maximum length",
        "hidden_size": "repeats d_model",
        "num_hidden_layers": "repeats num_layers",
    },
    ignored_weights={
        "@decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "unused, written by old releases",
    },
    network_types=(EncoderDecoder, EncoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "T5Model": Architecture(head=lambda _: None),
        "T5ForConditionalGeneration": Architecture(
            head=language_model_head, weights=(Entry("lm_head", "head.output"),)
        ),
        "T5EncoderModel": Architecture(head=lambda _: None, network=encoder_only),
        "T5ForSequenceClassification": Architecture(
            prefix="transformer.",
            head=classification_head,
            weights=CLASSIFIER_WEIGHTS,
        ),
        "T5ForTokenClassification": Architecture(
            prefix="transformer.",
            head=lambda t: Tagging(labels=t.num_labels, bias=True, dropout=t["classifier_dropout"]),
            weights=(Entry("classifier", "head.output"),),
            network=encoder_only,
        ),
        "T5ForQuestionAnswering": Architecture(
            head=lambda t: Span(labels=t.num_labels, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
    },
    presets={
        "t5-small": preset_keys(),
        "t5-base": preset_keys(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
        "t5-large": preset_keys(d_model=1024, d_ff=4096, num_layers=24, num_heads=16),
        "t5-3b": preset_keys(d_model=1024, d_kv=128, d_ff=16384, num_layers=24, num_heads=32),
        "t5-11b": preset_keys(d_model=1024, d_kv=128, d_ff=65536, num_layers=24, num_heads=128),
        "t5-v1_1-small": preset_keys(True, d_ff=1024, num_layers=8, num_heads=6),
        "t5-v1_1-base": preset_keys(True, d_model=768, num_layers=12, num_heads=12),
        "t5-v1_1-large": preset_keys(True, d_model=1024, d_ff=2816, num_layers=24, num_heads=16),
        "t5-v1_1-xl": preset_keys(True, d_model=2048, d_ff=5120, num_layers=24, num_heads=32),
        "t5-v1_1-xxl": preset_keys(True, d_model=4096, d_ff=10240, num_layers=24, num_heads=64),
    },
)
