"""Metrics of vectors on validation data: pairs of texts with scores, images with captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example import ImageText, LabeledText
from regard.metrics.label_metrics import spearman
from regard.metrics.retrieval import recall_at_k
from regard.tasks.embed import EMBED, EmbedOptions

RECALL_AT = 10


def embed_matrix(model: Any, inputs: Sequence[Any], options: EmbedOptions) -> NDArray[np.float64]:
    """Return the vectors of texts or images as a matrix of rows of length one."""
    vectors = np.array([result.vector for result in EMBED.runner(model, options).run(inputs)], np.float64)
    normalized: NDArray[np.float64] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return normalized


def evaluate_text_pairs(model: Any, examples: Sequence[LabeledText]) -> dict[str, float]:
    """Return the rank correlation of cosines and scores."""
    first = embed_matrix(model, [example.text for example in examples], EmbedOptions())
    second = embed_matrix(model, [example.pair or "" for example in examples], EmbedOptions())
    cosines = (first * second).sum(axis=1).tolist()
    return {"spearman": spearman([float(example.label) for example in examples], cosines)}


def evaluate_captions(model: Any, examples: Sequence[ImageText]) -> dict[str, float]:
    """Return how often an image is among the ten nearest of its caption, and one of its captions among its ten."""
    images = list(dict.fromkeys(example.image for example in examples))
    number = {image: index for index, image in enumerate(images)}
    captions = embed_matrix(model, [example.text for example in examples], EmbedOptions())
    pictures = embed_matrix(model, images, EmbedOptions(images=True))
    similarities = captions @ pictures.T
    own: list[list[int]] = [[] for _ in images]
    for index, example in enumerate(examples):
        own[number[example.image]].append(index)
    found = recall_at_k(similarities, [[number[example.image]] for example in examples], (RECALL_AT,))
    back = recall_at_k(similarities.T, own, (RECALL_AT,))
    return {f"image_{name}": value for name, value in found.items()} | {
        f"text_{name}": value for name, value in back.items()
    }
