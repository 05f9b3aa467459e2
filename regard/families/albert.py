"""ALBERT (Lan et al. 2019): BERT with parameters shared across layers and factorized embeddings.

Its second pretraining task is sentence-order prediction.
"""

from dataclasses import replace
from typing import Any

from regard.families import bert
from regard.families.bert import (
    POOLER_TRANSFORM,
    classification_head,
    in_two_heads,
    language_model_head,
    output_bias_weights,
)
from regard.families.family import Architecture, Family, FamilyInfo, PublishedConfig, is_tied, label_keys
from regard.families.weight_map import Entry
from regard.transformer.config import EncoderOnly, Groups, Head, Pooler, Pooling, Projection, Span, Tagging, TwoHeads

KEYS = {
    **{key: value for key, value in bert.KEYS.items() if key not in ("is_decoder", "classifier_dropout")},
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "inner_group_num": 1,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.1,
}


def network(theirs: PublishedConfig, head: Head | None) -> EncoderOnly:
    """Return the network config of a published config: BERT's, with shared layers and an embedding projection."""
    design = bert.network(PublishedConfig({key: theirs[key] for key in KEYS if key in bert.KEYS}, bert.FAMILY), head)
    assert isinstance(design, EncoderOnly)
    block = design.encoder.blocks[0]
    inner = theirs["inner_group_num"]
    return replace(
        design,
        embedding=replace(design.embedding, dim=theirs["embedding_size"], projection=Projection(bias=True)),
        encoder=replace(
            design.encoder,
            layers=theirs["num_hidden_layers"] * inner,
            sharing=Groups(groups=theirs["num_hidden_groups"], inner=inner),
            blocks=(replace(block, feedforward=replace(block.feedforward, output_dropout=0.0)),),
        ),
    )


def describe(design: EncoderOnly) -> dict[str, Any]:
    """Return the published config of a network config (the inverse of `network`)."""
    sharing, head = design.encoder.sharing, design.head
    classifier = head.sentence if isinstance(head, TwoHeads) else head
    keys = {key: value for key, value in bert.describe(design).items() if key in KEYS}
    return {
        **keys,
        "embedding_size": design.embedding.dim,
        "num_hidden_layers": design.encoder.layers // sharing.inner,  # type: ignore[union-attr]
        "num_hidden_groups": sharing.groups,  # type: ignore[union-attr]
        "inner_group_num": sharing.inner,  # type: ignore[union-attr]
        "classifier_dropout_prob": getattr(classifier, "dropout", KEYS["classifier_dropout_prob"]),
        "tie_word_embeddings": is_tied(design),
        **label_keys(design),
    }


def weights(design: EncoderOnly) -> tuple[Entry, ...]:
    """Return the weight map of the network: a block is named by its group and its index in the group."""
    sharing = design.encoder.sharing
    assert isinstance(sharing, Groups)
    blocks = [(group, index) for group in range(sharing.groups) for index in range(sharing.inner)]
    return (
        Entry("@embeddings.word_embeddings", "embedding.tokens"),
        Entry("@embeddings.position_embeddings", "embedding.position"),
        Entry("@embeddings.token_type_embeddings", "embedding.segments"),
        Entry("@embeddings.LayerNorm", "embedding.norm"),
        Entry("@encoder.embedding_hidden_mapping_in", "embedding.projection"),
        *(entry for number, (group, index) in enumerate(blocks) for entry in block_entries(number, group, index)),
        *output_bias_weights(design, "predictions"),
    )


def block_entries(number: int, group: int, index: int) -> tuple[Entry, ...]:
    """Return the weight map of one block."""
    theirs = f"@encoder.albert_layer_groups.{group}.albert_layers.{index}"
    ours = f"encoder.blocks.{number}"
    return (
        Entry(f"{theirs}.attention.query", f"{ours}.attention.project.query"),
        Entry(f"{theirs}.attention.key", f"{ours}.attention.project.key"),
        Entry(f"{theirs}.attention.value", f"{ours}.attention.project.value"),
        Entry(f"{theirs}.attention.dense", f"{ours}.attention.output"),
        Entry(f"{theirs}.attention.LayerNorm", f"{ours}.attention_residual.norm"),
        Entry(f"{theirs}.ffn", f"{ours}.feedforward.up"),
        Entry(f"{theirs}.ffn_output", f"{ours}.feedforward.down"),
        Entry(f"{theirs}.full_layer_layer_norm", f"{ours}.feedforward_residual.norm"),
    )


LANGUAGE_MODEL_WEIGHTS = (
    Entry("predictions.dense", "head.transform.dense"),
    Entry("predictions.LayerNorm", "head.transform.norm"),
    Entry("predictions.decoder", "head.output"),
)
CLASSIFIER_WEIGHTS = (Entry("@pooler", "head.transform.dense"), Entry("classifier", "head.output"))


def classifier_dropout(theirs: PublishedConfig) -> float:
    """Return the dropout rate of a classification head."""
    return float(theirs["classifier_dropout_prob"])


FAMILY = Family(
    name="albert",
    info=FamilyInfo(
        title="ALBERT",
        year=2019,
        paper="Lan et al., ALBERT: A Lite BERT for Self-supervised Learning of Language Representations",
        objective="masked language modelling; sentence-order prediction",
        parent="BERT",
    ),
    keys=KEYS,
    ignored_keys=dict.fromkeys(
        ["down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks", "layers_to_keep", "is_decoder"],
        "never used",
    ),
    ignored_weights={
        "@embeddings.position_ids": "position ids 0, 1, 2, …",
        "predictions.bias": "unused if predictions.decoder.bias differs from it",
    },
    network_types=(EncoderOnly,),
    network=network,
    describe=describe,
    weights=weights,
    architectures={
        "AlbertModel": Architecture(
            head=lambda _: Pooler(pooling=Pooling.FIRST, transform=POOLER_TRANSFORM),
            weights=(Entry("@pooler", "head.transform.dense"),),
        ),
        "AlbertForMaskedLM": Architecture(prefix="albert.", head=language_model_head, weights=LANGUAGE_MODEL_WEIGHTS),
        "AlbertForPreTraining": Architecture(
            prefix="albert.",
            head=lambda t: TwoHeads(
                words=language_model_head(t), sentence=classification_head(t.num_labels, classifier_dropout(t))
            ),
            weights=(
                *in_two_heads(LANGUAGE_MODEL_WEIGHTS, "head.words"),
                Entry("@pooler", "head.sentence.transform.dense"),
                Entry("sop_classifier.classifier", "head.sentence.output"),
            ),
        ),
        "AlbertForSequenceClassification": Architecture(
            prefix="albert.",
            head=lambda t: classification_head(t.num_labels, classifier_dropout(t)),
            weights=CLASSIFIER_WEIGHTS,
        ),
        "AlbertForMultipleChoice": Architecture(
            prefix="albert.", head=lambda t: classification_head(1, classifier_dropout(t)), weights=CLASSIFIER_WEIGHTS
        ),
        "AlbertForTokenClassification": Architecture(
            prefix="albert.",
            head=lambda t: Tagging(labels=t.num_labels, bias=True, dropout=classifier_dropout(t)),
            weights=(Entry("classifier", "head.output"),),
        ),
        "AlbertForQuestionAnswering": Architecture(
            prefix="albert.",
            head=lambda t: Span(labels=t.num_labels, bias=True),
            weights=(Entry("qa_outputs", "head.output"),),
        ),
    },
    presets={
        f"albert-{size}": {
            "architectures": ["AlbertForMaskedLM"],
            **dict(hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * dim),
        }
        for size, dim, layers, heads in [
            ("base", 768, 12, 12),
            ("large", 1024, 24, 16),
            ("xlarge", 2048, 24, 16),
            ("xxlarge", 4096, 12, 64),
        ]
    },
)
