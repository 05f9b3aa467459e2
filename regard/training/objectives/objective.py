"""What all objectives have in common: a batch goes in, a sum of losses and the count of what it is a sum over come out.

Never a mean: the mean of means is wrong as soon as batches differ in size. The loop adds up the sums and the counts of
a whole update and divides once, so the loss is per token whatever the accumulation or the shapes of the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.data.encoders.encoder_base import IGNORED
from regard.training.modules.fused_modules import words_loss
from regard.transformer.batch_layout import Rows
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import EachToken


def read(network: Any, batch: Batch) -> Any:
    """What a network says that reads the column `tokens`, and `segments` where it knows segments."""
    tokens = batch["tokens"]
    segmented = getattr(getattr(network, "embedding", None), "segments", None) is not None
    beside = {"segments": batch["segments"].tokens} if segmented and "segments" in batch.columns else {}
    return network(tokens.tokens, rows=tokens.rows, **beside)


@dataclass(frozen=True)
class Loss:
    """What a network lost on a batch."""

    sum: Float[Tensor, ""]
    """The sum, with its gradient."""
    count: int
    """What it is a sum over: tokens, rows."""
    right: Mapping[str, int] = field(default_factory=dict)
    """How many of them were right, by the name of the measure. Not counted while training."""


@runtime_checkable
class Objective(Protocol):
    """What a network is trained to do. To add one, add a file to `objectives`."""

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The loss of a network on a batch. What is drawn at random comes from torch's own generator."""


@dataclass(frozen=True)
class Asked:
    """A question to a network, and what it should have said at each place."""

    call: Callable[[Any, Batch], Any]
    """Has a network read a batch, and returns its `Output`."""
    batch: Batch
    """What it reads."""
    labels: Int[Tensor, " places"]
    """What is right; IGNORED where anything is."""

    def twice(self) -> Asked:
        """All rows, and then all rows once more."""
        return replace(self, batch=self.batch.twice(), labels=self.labels.repeat(2))


Vectors = Float[Tensor, "places model"]


def label_loss(
    vectors: Vectors, head: EachToken | None, labels: Int[Tensor, " places"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the cross-entropies of what a head says of each vector; without a head, of the vectors themselves.

    With smoothing ε the truth is 1 − ε at the label and ε spread evenly over all labels (Szegedy et al. 2015):
    −(1 − ε) · log p(label) − ε · mean of log p.
    """
    if piecewise(head, vectors):
        return words_loss(head, vectors, labels, smoothing)
    scores = scored(head, vectors)
    return nn.functional.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum")


def piecewise(head: EachToken | None, vectors: Vectors) -> TypeGuard[LanguageModel]:
    """Whether the loss of such a head is computed a few tokens at a time (`cross_entropy.py`)."""
    return isinstance(head, LanguageModel) and vectors.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def scored(head: EachToken | None, vectors: Vectors) -> Float[Tensor, "places labels"]:
    """What a head says of each vector."""
    if head is None:
        return vectors
    rows = Rows.of((max(1, len(vectors)),), vectors.device)  # which it does not look at
    return torch.as_tensor(head(vectors, rows).words)


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """Objectives that ask for a label at each place: a word, a tag, a class."""

    says_words: ClassVar[bool] = True
    """Whether labels are words, so that a loss means a perplexity."""
    smoothing: float = 0.0
    """How much of the truth is spread over all labels, while training."""

    def ask(self, batch: Batch) -> Asked:
        """What the network is asked about a batch."""
        raise NotImplementedError

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the labelled places."""
        vectors, head, labels = answer(self.ask(batch), network)
        if network.training:
            return Loss(label_loss(vectors, head, labels, self.smoothing), len(labels))
        right = int((scored(head, vectors).argmax(dim=-1) == labels).sum())
        return Loss(label_loss(vectors, head, labels, 0.0), len(labels), {"accuracy": right})


Answer = tuple[Vectors, EachToken | None, Int[Tensor, " places"]]
"""Vectors, the head that is to score them, and the labels."""


def answer(asked: Asked, network: Any) -> Answer:
    """The vectors at the labelled places, the head that is to score them, and the labels.

    Where the head scores each place alone, it is left off while the network runs: places without a label are then
    never scored, and a loss that works piece by piece need not hold all scores. Other heads score whole rows: what
    they say are the vectors, and no head is left.
    """
    labels = asked.labels
    head = network.head if isinstance(network.head, EachToken) else None
    if head is not None:
        vectors = asked.call(network.headless(), asked.batch).hidden
    else:
        vectors = asked.call(network, asked.batch).logits
        if vectors is None:
            raise ValueError("the network has no head that gives labels: this objective needs one")
    labelled = labels != IGNORED
    if bool(labelled.all()):
        return vectors, head, labels
    return vectors[labelled], head, labels[labelled]
