"""T5 (Raffel et al. 2019): every task as text to text. 1.0, and 1.1, which Flan and mT5 follow.

Pre-norm with RMSNorm, no biases at all, scores without a scale, and positions as a number for each head and bucket of
distances, shared by all blocks of a stack. 1.1 gates its feed-forward layer and has a last layer of its own.
"""

from typing import Any

from regard.families.bart import CLASSIFIER, sentence
from regard.families.family import Architecture, Family, Maybe, Story, Theirs, activation_name, is_tied, labels
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
    "num_decoder_layers": Maybe(int),
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
    "scale_decoder_outputs": Maybe(bool),
}


def feedforward(theirs: Theirs) -> Dense | Gated:
    """`relu`, or `gated-gelu`, where gelu means the tanh formula."""
    kind, _, name = theirs["feed_forward_proj"].rpartition("-")
    activation = Activation.GELU_TANH if theirs["feed_forward_proj"] == "gated-gelu" else None
    if activation is None:
        activation = Theirs({"feed_forward_proj": name}, FAMILY).activation("feed_forward_proj")
    rate = theirs["dropout_rate"]
    layer = Gated if kind == "gated" else Dense
    return layer(dim=theirs["d_ff"], activation=activation, bias=False, dropout=rate, output_dropout=rate)


def stack(theirs: Theirs, layers: int, decoder: bool) -> Stack:
    """The encoder's blocks, or the decoder's."""
    rate, norm = theirs["dropout_rate"], RMSNorm(epsilon=theirs["layer_norm_epsilon"])
    attention = Attention(
        heads=theirs["num_heads"],
        key_value_heads=theirs["num_heads"],
        head_dim=theirs["d_kv"],
        scale=1.0,
        bias=False,
        output_bias=False,
        position=None,
        dropout=rate,
        output_dropout=rate,
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
        final_dropout=rate,
    )


def embedding(theirs: Theirs, tokens: Tokens | SourceTokens) -> Embedding:
    """Of the source, or of the target."""
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


def tokens(theirs: Theirs) -> Tokens:
    """The one token table."""
    return Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"])


def network(theirs: Theirs, head: Head | None) -> EncoderDecoder:
    """The network of a config."""
    writing = theirs["num_layers"] if theirs["num_decoder_layers"] is None else theirs["num_decoder_layers"]
    return EncoderDecoder(
        model_dim=theirs["d_model"],
        source=embedding(theirs, tokens(theirs)),
        target=embedding(theirs, SourceTokens()),
        encoder=stack(theirs, theirs["num_layers"], decoder=False),
        decoder=stack(theirs, writing, decoder=True),
        head=head,
        initialization=FanIn(factor=theirs["initializer_factor"]),
    )


def encoder_alone(theirs: Theirs, head: Head | None) -> EncoderOnly:
    """The encoder without its decoder."""
    return EncoderOnly(
        model_dim=theirs["d_model"],
        embedding=embedding(theirs, tokens(theirs)),
        encoder=stack(theirs, theirs["num_layers"], decoder=False),
        head=head,
        initialization=FanIn(factor=theirs["initializer_factor"]),
    )


def describe(design: EncoderDecoder | EncoderOnly) -> dict[str, Any]:
    """The config of a network."""
    both = isinstance(design, EncoderDecoder)
    source = design.source if isinstance(design, EncoderDecoder) else design.embedding
    block, start = design.encoder.blocks[0], design.initialization
    inner = block.feedforward
    name = activation_name(inner.activation)
    if isinstance(inner, Gated):
        name = "gated-gelu" if inner.activation is Activation.GELU_TANH else f"gated-{name}"
    keys = {
        "vocab_size": source.tokens.vocabulary,  # type: ignore[union-attr]
        "d_model": design.model_dim,
        "d_kv": block.attention.head_dim,
        "d_ff": inner.dim,
        "num_layers": design.encoder.layers,
        "num_decoder_layers": design.decoder.layers if isinstance(design, EncoderDecoder) else None,
        "num_heads": block.attention.heads,
        "relative_attention_num_buckets": design.encoder.position.buckets,  # type: ignore[union-attr]
        "relative_attention_max_distance": design.encoder.position.distance,  # type: ignore[union-attr]
        "dropout_rate": source.dropout,
        "classifier_dropout": getattr(design.head, "dropout", 0.0),
        "layer_norm_epsilon": block.norm.epsilon,
        "initializer_factor": start.factor if isinstance(start, FanIn) else KEYS["initializer_factor"],
        "feed_forward_proj": name,
        "pad_token_id": source.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        "is_encoder_decoder": both,
        **labels(design),
    }
    if isinstance(design.head, LanguageModel):
        keys["scale_decoder_outputs"] = design.head.scale != 1.0
    return keys


def words(theirs: Theirs) -> LanguageModel:
    """The head that writes. Old configs say by `tie_word_embeddings` whether its input is scaled, new ones as such."""
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


def attention_weights(theirs: str, ours: str) -> tuple[Entry, ...]:
    """One attention, and the norm before it."""
    parts = {"q": "project.query", "k": "project.key", "v": "project.value", "o": "output"}
    return tuple(Entry(f"{theirs}.{one}", f"{ours}.{other}") for one, other in parts.items())


def block_weights(side: str, last: int, up: str) -> tuple[Entry, ...]:
    """The blocks of the encoder, or of the decoder; the feed-forward layer is the last of their sublayers."""
    theirs, ours = f"@{side}.block.#.layer", f"{side}.blocks.#"
    across = (
        *attention_weights(f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention"),
        Entry(f"{theirs}.1.layer_norm", f"{ours}.cross_attention_residual.norm"),
    )
    return (
        *attention_weights(f"{theirs}.0.SelfAttention", f"{ours}.attention"),
        Entry(f"{theirs}.0.layer_norm", f"{ours}.attention_residual.norm"),
        *(across if side == "decoder" else ()),
        Entry(f"{theirs}.{last}.DenseReluDense.{up}", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.{last}.DenseReluDense.wi_0", f"{ours}.feedforward.gate"),
        Entry(f"{theirs}.{last}.DenseReluDense.wo", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.{last}.layer_norm", f"{ours}.feedforward_residual.norm"),
        Entry(f"@{side}.block.0.layer.0.SelfAttention.relative_attention_bias", f"{side}.position"),
        Entry(f"@{side}.final_layer_norm", f"{side}.final_norm"),
    )


def weights(design: EncoderDecoder | EncoderOnly) -> tuple[Entry, ...]:
    """Where the network's weights stand. The first of several names for one thing is the one that is written."""
    up = "wi_1" if isinstance(design.encoder.blocks[0].feedforward, Gated) else "wi"
    encoder = block_weights("encoder", 1, up)
    if isinstance(design, EncoderOnly):
        table = "embedding.tokens"
        return (Entry("@shared", table), Entry("@encoder.embed_tokens", table), *encoder)
    return (
        Entry("@shared", "source.tokens"),
        Entry("@encoder.embed_tokens", "source.tokens"),
        Entry("@decoder.embed_tokens", "target.tokens"),
        *encoder,
        *block_weights("decoder", 2, up),
    )


def sizes(one_point_one: bool = False, **keys: Any) -> dict[str, Any]:
    """A published size, of 1.0 or of 1.1."""
    new = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return {"architectures": ["T5ForConditionalGeneration"], **keys, **(new if one_point_one else {})}


FAMILY = Family(
    name="t5",
    story=Story(
        title="T5",
        year=2019,
        paper="Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        objective="fill in missing spans, as text",
        parent="Transformer",
    ),
    keys=KEYS,
    ignored={
        "dense_act_fn": "follows from feed_forward_proj",
        "is_gated_act": "follows from feed_forward_proj",
        "is_decoder": "the architecture's name says it",
        "n_positions": "the length of the first training; T5 knows no longest row",
        "hidden_size": "repeats d_model",
        "num_hidden_layers": "repeats num_layers",
    },
    ignored_weights={
        "@decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "an old mistake: never used",
    },
    kinds=(EncoderDecoder, EncoderOnly),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "T5Model": Architecture(head=lambda _: None),
        "T5ForConditionalGeneration": Architecture(head=words, weights=(Entry("lm_head", "head.output"),)),
        "T5EncoderModel": Architecture(head=lambda _: None, network=encoder_alone),
        "T5ForSequenceClassification": Architecture(
            base="transformer.",
            head=sentence,
            weights=CLASSIFIER,
        ),
        "T5ForTokenClassification": Architecture(
            base="transformer.",
            head=lambda t: Tagging(labels=t.labels, bias=True, dropout=t["classifier_dropout"]),
            weights=(Entry("classifier", "head.output"),),
            network=encoder_alone,
        ),
        "T5ForQuestionAnswering": Architecture(
            head=lambda t: Span(labels=t.labels, bias=True), weights=(Entry("qa_outputs", "head.output"),)
        ),
    },
    presets={
        "t5-small": sizes(),
        "t5-base": sizes(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
        "t5-large": sizes(d_model=1024, d_ff=4096, num_layers=24, num_heads=16),
        "t5-3b": sizes(d_model=1024, d_kv=128, d_ff=16384, num_layers=24, num_heads=32),
        "t5-11b": sizes(d_model=1024, d_kv=128, d_ff=65536, num_layers=24, num_heads=128),
        "t5-v1_1-small": sizes(True, d_ff=1024, num_layers=8, num_heads=6),
        "t5-v1_1-base": sizes(True, d_model=768, num_layers=12, num_heads=12),
        "t5-v1_1-large": sizes(True, d_model=1024, d_ff=2816, num_layers=24, num_heads=16),
        "t5-v1_1-xl": sizes(True, d_model=2048, d_ff=5120, num_layers=24, num_heads=32),
        "t5-v1_1-xxl": sizes(True, d_model=4096, d_ff=10240, num_layers=24, num_heads=64),
    },
)
