"""XLNet (Yang et al. 2019): Transformer-XL's attention with permutation language modelling.

Two streams share all weights; attention scores also depend on whether query and key are in the same segment. The
weights are stored as 3-D tensors with an axis for the heads.
"""

from typing import Any

from regard.families.family import (
    Architecture,
    ConfigError,
    Family,
    FamilyInfo,
    OptionalKey,
    PublishedConfig,
    activation_name,
    is_tied,
    label_keys,
    output_weights,
)
from regard.families.weight_map import Entry, SplitHeads, SplitHeadsTransposed, Unsqueeze
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
    "d_head": OptionalKey(int),
    "ff_activation": "gelu",
    "attn_type": "bi",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "dropout": 0.1,
    "mem_len": OptionalKey(int, 512),
    "reuse_len": OptionalKey(int),
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


def network(theirs: PublishedConfig, head: Head | None) -> TwoStream:
    """Return the network config of a published config."""
    theirs.require("attn_type", "bi", "uni")
    theirs.require("bi_data", False)
    theirs.require("same_length", False)
    theirs.require("reuse_len", None, 0)
    theirs.require("untie_r", True)
    head_dim, dropout = theirs.head_dim("d_model", "n_head"), theirs["dropout"]
    if theirs["d_head"] not in (None, head_dim):
        raise ConfigError(f"config.json: d_head is {theirs['d_head']}, but d_model / n_head is {head_dim}")
    block = Block(
        attention=Attention(
            heads=theirs["n_head"],
            key_value_heads=theirs["n_head"],
            head_dim=head_dim,
            scale=head_dim**-0.5,
            bias=False,
            output_bias=False,
            position=RelativeAndSegment(),
            dropout=dropout,
            output_dropout=dropout,
        ),
        cross_attention=None,
        feedforward=Dense(
            dim=theirs["d_inner"],
            activation=theirs.activation("ff_activation"),
            bias=True,
            dropout=dropout,
            output_dropout=dropout,
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
            dropout=dropout,
        ),
        encoder=Stack(
            layers=theirs["n_layer"],
            sharing=Apart(),
            blocks=(block,),
            mask=Everything() if theirs["attn_type"] == "bi" else Causal(),
            position=RelativeWaves(farthest=theirs["clamp_len"] if theirs["clamp_len"] > 0 else None, dropout=dropout),
            memory=Recurrence(length=theirs["mem_len"] or None, begin=Begin.EMPTY),
            final_norm=None,
            final_dropout=dropout,
        ),
        head=head,
        initialization=Normal(deviation=theirs["initializer_range"]),
    )


def describe(design: TwoStream) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    block, initialization, head = design.encoder.blocks[0], design.initialization, design.head
    span_search = head if isinstance(head, AnswerSearch) else None
    classifier = head if isinstance(head, Classification) else None
    return {
        "vocab_size": design.embedding.tokens.vocabulary,  # type: ignore[union-attr]
        "d_model": design.model_dim,
        "n_layer": design.encoder.layers,
        "n_head": block.attention.heads,
        "d_inner": block.feedforward.dim,
        "ff_activation": activation_name(block.feedforward.activation),
        "attn_type": "uni" if isinstance(design.encoder.mask, Causal) else "bi",
        "initializer_range": initialization.deviation
        if isinstance(initialization, Normal)
        else KEYS["initializer_range"],
        "layer_norm_eps": block.norm.epsilon,
        "dropout": design.embedding.dropout,
        "mem_len": design.encoder.memory.length,  # type: ignore[union-attr]
        "clamp_len": design.encoder.position.farthest or -1,  # type: ignore[union-attr]
        "summary_last_dropout": classifier.dropout if classifier else KEYS["summary_last_dropout"],
        "start_n_top": span_search.starts if span_search else KEYS["start_n_top"],
        "end_n_top": span_search.ends if span_search else KEYS["end_n_top"],
        "pad_token_id": design.embedding.tokens.padding,  # type: ignore[union-attr]
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def language_model_head(theirs: PublishedConfig) -> LanguageModel:
    """Return the config of the language-model head."""
    return LanguageModel(
        vocabulary=theirs["vocab_size"],
        transform=None,
        scale=1.0,
        weights=output_weights(theirs),
        bias=OutputBias.LEARNT,
    )


def classification_head(theirs: PublishedConfig, labels: int) -> Classification:
    """Return the config of a sequence-classification head on the last token."""
    theirs.require("summary_type", "last")
    theirs.require("summary_use_proj", True)
    transform = Transform(activation=theirs.activation("summary_activation"), norm=None)
    dropout = theirs["summary_last_dropout"]
    return Classification(labels=labels, pooling=Pooling.LAST, transform=transform, bias=True, dropout=dropout)


def span_search_head(theirs: PublishedConfig) -> AnswerSearch:
    """Return the config of the question-answering head with beam search over spans."""
    norm = LayerNorm(epsilon=theirs["layer_norm_eps"])
    return AnswerSearch(starts=theirs["start_n_top"], ends=theirs["end_n_top"], norm=norm)


def weights(design: TwoStream) -> tuple[Entry, ...]:
    """Return the weight map of the network (without its head)."""
    heads = design.encoder.blocks[0].attention.heads
    theirs, ours = "@layer.#.rel_attn", "encoder.blocks.#"
    return (
        Entry("@word_embedding", "embedding.tokens"),
        Entry("@mask_emb", "guess", Unsqueeze(2), exact=True),
        Entry(f"{theirs}.q", f"{ours}.attention.project.query.weight", SplitHeadsTransposed(heads), exact=True),
        Entry(f"{theirs}.k", f"{ours}.attention.project.key.weight", SplitHeadsTransposed(heads), exact=True),
        Entry(f"{theirs}.v", f"{ours}.attention.project.value.weight", SplitHeadsTransposed(heads), exact=True),
        Entry(f"{theirs}.r", f"{ours}.attention.relative.project.weight", SplitHeadsTransposed(heads), exact=True),
        Entry(f"{theirs}.o", f"{ours}.attention.output.weight", SplitHeads(heads), exact=True),
        Entry(f"{theirs}.r_w_bias", f"{ours}.attention.relative.content", exact=True),
        Entry(f"{theirs}.r_r_bias", f"{ours}.attention.relative.distance", exact=True),
        Entry(f"{theirs}.r_s_bias", f"{ours}.attention.segments.segment", exact=True),
        Entry(f"{theirs}.seg_embed", f"{ours}.attention.segments.weight", exact=True),
        Entry(f"{theirs}.layer_norm", f"{ours}.attention_residual.norm"),
        Entry("@layer.#.ff.layer_1", f"{ours}.feedforward.up"),
        Entry("@layer.#.ff.layer_2", f"{ours}.feedforward.down"),
        Entry("@layer.#.ff.layer_norm", f"{ours}.feedforward_residual.norm"),
    )


CLASSIFIER_WEIGHTS = (Entry("sequence_summary.summary", "head.transform.dense"), Entry("logits_proj", "head.output"))
SPAN_SEARCH_WEIGHTS = (
    Entry("start_logits.dense", "head.start"),
    Entry("end_logits.dense_0", "head.end_transform"),
    Entry("end_logits.LayerNorm", "head.end_norm"),
    Entry("end_logits.dense_1", "head.end"),
    Entry("answer_class.dense_0", "head.answer_transform"),
    Entry("answer_class.dense_1", "head.answer"),
)

FAMILY = Family(
    name="xlnet",
    info=FamilyInfo(
        title="XLNet",
        year=2019,
        paper="Yang et al., XLNet: Generalized Autoregressive Pretraining for Language Understanding",
        objective="permutation language modelling",
        parent="Transformer-XL",
    ),
    keys=KEYS,
    ignored_keys={
        **dict.fromkeys(["use_mems_eval", "use_mems_train"], "call option: a memory is used if it is passed"),
        **dict.fromkeys(["summary_proj_to_labels", "summary_hidden_size"], "never used"),
        "max_position_embeddings": "XLNet has no maximum length",
    },
    network_types=(TwoStream,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "XLNetModel": Architecture(head=lambda _: None),
        "XLNetLMHeadModel": Architecture(
            prefix="transformer.",
            head=language_model_head,
            weights=(Entry("lm_loss", "head.output"), Entry("lm_loss", "head")),
        ),
        "XLNetForSequenceClassification": Architecture(
            prefix="transformer.",
            head=lambda theirs: classification_head(theirs, theirs.num_labels),
            weights=CLASSIFIER_WEIGHTS,
        ),
        "XLNetForMultipleChoice": Architecture(
            prefix="transformer.", head=lambda theirs: classification_head(theirs, 1), weights=CLASSIFIER_WEIGHTS
        ),
        "XLNetForTokenClassification": Architecture(
            prefix="transformer.",
            head=lambda theirs: Tagging(labels=theirs.num_labels, bias=True),
            weights=(Entry("classifier", "head.output"),),
        ),
        "XLNetForQuestionAnsweringSimple": Architecture(
            prefix="transformer.",
            head=lambda theirs: Span(labels=theirs.num_labels, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
        "XLNetForQuestionAnswering": Architecture(
            prefix="transformer.", head=span_search_head, weights=SPAN_SEARCH_WEIGHTS
        ),
    },
    presets={
        "xlnet-base": {
            "architectures": ["XLNetLMHeadModel"],
            **dict(d_model=768, n_layer=12, n_head=12, d_inner=3072, mem_len=None),
        },
        "xlnet-large": {"architectures": ["XLNetLMHeadModel"], "mem_len": None},
    },
)
