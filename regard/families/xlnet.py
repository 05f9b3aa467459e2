"""XLNet (Yang et al. 2019): Transformer-XL's attention, trained to guess the words of a text in any order.

Two streams share all weights; scores also know whether query and key are of the same segment. Its weights are stored as
cubes, one axis for the heads.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    Maybe,
    Story,
    Theirs,
    activation_name,
    is_tied,
    labels,
    tied,
)
from regard.families.weight_map import AsRow, Entry, OfHeads, PerHead
from regard.transformer.config import (
    AnswerSearch,
    Apart,
    Attention,
    Begin,
    Block,
    Classification,
    Dense,
    Embedding,
    Head,
    LanguageModel,
    LayerNorm,
    Normal,
    NormOrder,
    OutputBias,
    Pooling,
    Recurrence,
    RelativeAndSegment,
    RelativeWaves,
    Span,
    Stack,
    Tagging,
    Tokens,
    Transform,
    TwoStream,
)
from regard.transformer.mask import Causal, Everything

KEYS = {
    "vocab_size": 32000,
    "d_model": 1024,
    "n_layer": 24,
    "n_head": 16,
    "d_inner": 4096,
    "d_head": Maybe(int),
    "ff_activation": "gelu",
    "attn_type": "bi",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "dropout": 0.1,
    "mem_len": Maybe(int, 512),
    "reuse_len": Maybe(int),
    "bi_data": False,
    "clamp_len": -1,
    "same_length": False,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
    "summary_last_dropout": 0.1,
    "start_n_top": 5,
    "end_n_top": 5,
    "pad_token_id": 5,
    "untie_r": True,
    "tie_word_embeddings": True,
}


def network(theirs: Theirs, head: Head | None) -> TwoStream:
    """The network of a config."""
    theirs.require("attn_type", "bi", "uni")
    theirs.require("bi_data", False)
    theirs.require("same_length", False)
    theirs.require("reuse_len", None, 0)
    theirs.require("untie_r", True)
    size, rate = theirs.divide("d_model", "n_head"), theirs["dropout"]
    if theirs["d_head"] not in (None, size):
        raise ConfigError(f"config.json: d_head is {theirs['d_head']}, but d_model / n_head is {size}")
    block = Block(
        attention=Attention(
            heads=theirs["n_head"],
            key_value_heads=theirs["n_head"],
            head_dim=size,
            scale=size**-0.5,
            bias=False,
            output_bias=False,
            position=RelativeAndSegment(),
            dropout=rate,
            output_dropout=rate,
        ),
        cross_attention=None,
        feedforward=Dense(
            dim=theirs["d_inner"],
            activation=theirs.activation("ff_activation"),
            bias=True,
            dropout=rate,
            output_dropout=rate,
        ),
        norm=LayerNorm(epsilon=theirs["layer_norm_eps"]),
        order=NormOrder.POST,
        mask=Everything(),
    )
    return TwoStream(
        model_dim=theirs["d_model"],
        embedding=Embedding(
            tokens=Tokens(vocabulary=theirs["vocab_size"], padding=theirs["pad_token_id"]),
            dim=theirs["d_model"],
            scale=1.0,
            segments=0,
            position=None,
            norm=None,
            projection=None,
            dropout=rate,
        ),
        encoder=Stack(
            layers=theirs["n_layer"],
            sharing=Apart(),
            blocks=(block,),
            mask=Everything() if theirs["attn_type"] == "bi" else Causal(),
            position=RelativeWaves(farthest=theirs["clamp_len"] if theirs["clamp_len"] > 0 else None, dropout=rate),
            memory=Recurrence(length=theirs["mem_len"] or None, begin=Begin.EMPTY),
            final_norm=None,
            final_dropout=rate,
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: TwoStream) -> dict[str, Any]:
    """The config of a network."""
    block, start, head = design.encoder.blocks[0], design.initialization, design.head
    search = head if isinstance(head, AnswerSearch) else None
    scoring = head if isinstance(head, Classification) else None
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "d_model": design.model_dim,
        "n_layer": design.encoder.layers,
        "n_head": block.attention.heads,
        "d_inner": block.feedforward.dim,
        "ff_activation": activation_name(block.feedforward.activation),
        "attn_type": "uni" if isinstance(design.encoder.mask, Causal) else "bi",
        "initializer_range": start.deviation if isinstance(start, Normal) else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "dropout": design.embedding.dropout,
        "mem_len": design.encoder.memory.length,  # type: ignore[union-attr]
        "clamp_len": design.encoder.position.farthest or -1,  # type: ignore[union-attr]
        "summary_last_dropout": scoring.dropout if scoring else KEYS["summary_last_dropout"],
        "start_n_top": search.starts if search else KEYS["start_n_top"],
        "end_n_top": search.ends if search else KEYS["end_n_top"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        **labels(design),
    }


def words(theirs: Theirs) -> LanguageModel:
    """The head that guesses words."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"], transform=None, scale=1.0, weights=tied(theirs), bias=OutputBias.LEARNT
    )


def sentence(theirs: Theirs, count: int) -> Classification:
    """A head that scores the row by its last token's vector."""
    theirs.require("summary_type", "last")
    theirs.require("summary_use_proj", True)
    transform = Transform(activation=theirs.activation("summary_activation"), norm=None)
    rate = theirs["summary_last_dropout"]
    return Classification(labels=count, pooling=Pooling.LAST, transform=transform, bias=True, dropout=rate)


def search(theirs: Theirs) -> AnswerSearch:
    """The head that searches for answers."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return AnswerSearch(starts=theirs["start_n_top"], ends=theirs["end_n_top"], norm=norm)


def weights(design: TwoStream) -> tuple[Entry, ...]:
    """Where the network's weights stand."""
    heads = design.encoder.blocks[0].attention.heads
    theirs, ours = "@layer.#.rel_attn", "encoder.blocks.#"
    return (
        Entry("@word_embedding", "embedding.tokens"),
        Entry("@mask_emb", "guess", AsRow(2), exact=True),
        Entry(f"{theirs}.q", f"{ours}.attention.project.query.weight", PerHead(heads), exact=True),
        Entry(f"{theirs}.k", f"{ours}.attention.project.key.weight", PerHead(heads), exact=True),
        Entry(f"{theirs}.v", f"{ours}.attention.project.value.weight", PerHead(heads), exact=True),
        Entry(f"{theirs}.r", f"{ours}.attention.relative.project.weight", PerHead(heads), exact=True),
        Entry(f"{theirs}.o", f"{ours}.attention.output.weight", OfHeads(heads), exact=True),
        Entry(f"{theirs}.r_w_bias", f"{ours}.attention.relative.content", exact=True),
        Entry(f"{theirs}.r_r_bias", f"{ours}.attention.relative.distance", exact=True),
        Entry(f"{theirs}.r_s_bias", f"{ours}.attention.segments.segment", exact=True),
        Entry(f"{theirs}.seg_embed", f"{ours}.attention.segments.weight", exact=True),
        Entry(f"{theirs}.layer_norm", f"{ours}.attention_residual.norm"),
        Entry("@layer.#.ff.layer_1", f"{ours}.feedforward.up"),
        Entry("@layer.#.ff.layer_2", f"{ours}.feedforward.down"),
        Entry("@layer.#.ff.layer_norm", f"{ours}.feedforward_residual.norm"),
    )


CLASSIFIER = (Entry("sequence_summary.summary", "head.transform.dense"), Entry("logits_proj", "head.output"))
SEARCH = (
    Entry("start_logits.dense", "head.start"),
    Entry("end_logits.dense_0", "head.end_transform"),
    Entry("end_logits.LayerNorm", "head.end_norm"),
    Entry("end_logits.dense_1", "head.end"),
    Entry("answer_class.dense_0", "head.answer_transform"),
    Entry("answer_class.dense_1", "head.answer"),
)

FAMILY = Family(
    name="xlnet",
    story=Story(
        title="XLNet",
        year=2019,
        paper="Yang et al., XLNet: Generalized Autoregressive Pretraining for Language Understanding",
        objective="guess the words in any order",
        parent="Transformer-XL",
    ),
    keys=KEYS,
    ignored={
        **dict.fromkeys(["use_mems_eval", "use_mems_train"], "for whoever calls: a memory is used when it is given"),
        **dict.fromkeys(["summary_proj_to_labels", "summary_hidden_size"], "never used"),
        "max_position_embeddings": "there is no longest row",
    },
    kinds=(TwoStream,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "XLNetModel": Architecture(head=lambda _: None),
        "XLNetLMHeadModel": Architecture(
            base="transformer.", head=words, weights=(Entry("lm_loss", "head.output"), Entry("lm_loss", "head"))
        ),
        "XLNetForSequenceClassification": Architecture(
            base="transformer.", head=lambda theirs: sentence(theirs, theirs.labels), weights=CLASSIFIER
        ),
        "XLNetForMultipleChoice": Architecture(
            base="transformer.", head=lambda theirs: sentence(theirs, 1), weights=CLASSIFIER
        ),
        "XLNetForTokenClassification": Architecture(
            base="transformer.",
            head=lambda theirs: Tagging(labels=theirs.labels, bias=True),
            weights=(Entry("classifier", "head.output"),),
        ),
        "XLNetForQuestionAnsweringSimple": Architecture(
            base="transformer.",
            head=lambda theirs: Span(labels=theirs.labels, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
        "XLNetForQuestionAnswering": Architecture(base="transformer.", head=search, weights=SEARCH),
    },
    presets={
        "xlnet-base": {
            "architectures": ["XLNetLMHeadModel"],
            **dict(d_model=768, n_layer=12, n_head=12, d_inner=3072, mem_len=None),
        },
        "xlnet-large": {"architectures": ["XLNetLMHeadModel"], "mem_len": None},
    },
)
