"""What all objectives have in common: a batch goes in, a sum of losses and the count of what it is a sum over come out.

Never a mean: the mean of means is wrong as soon as batches differ in size. The loop adds up the sums and the counts of
a whole update and divides once, so the loss is per token whatever the accumulation or the shapes of the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.data.encoders.base import IGNORED
from regard.transformer.rows import Rows
from regard.transformer.scores import EachToken


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

    call: Callable[[Any], Any]
    """Asks a network, and returns its `Output`."""
    labels: Int[Tensor, " places"]
    """What is right; IGNORED where anything is."""


Vectors = Float[Tensor, "places model"]


@runtime_checkable
class LabelLoss(Protocol):
    """The sum of the losses at labelled places: `label_loss`, or something faster that gives the same."""

    def __call__(self, vectors: Tensor, score: Callable[[Tensor], Tensor], labels: Tensor, smoothing: float) -> Tensor:
        """The sum."""


def label_loss(
    vectors: Tensor, score: Callable[[Tensor], Tensor], labels: Int[Tensor, " places"], smoothing: float
) -> Float[Tensor, ""]:
    """The sum of the cross-entropies of what `score` says of each vector.

    With smoothing ε the truth is 1 − ε at the label and ε spread evenly over all labels (Szegedy et al. 2015):
    −(1 − ε) · log p(label) − ε · mean of log p.
    """
    return nn.functional.cross_entropy(score(vectors), labels, label_smoothing=smoothing, reduction="sum")


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """Objectives that ask for a label at each place: a word, a tag, a class."""

    smoothing: float = 0.0
    """How much of the truth is spread over all labels, while training."""
    label_loss: LabelLoss = label_loss

    def ask(self, batch: Batch) -> Asked:
        """What the network is asked about a batch."""
        raise NotImplementedError

    def loss(self, network: Any, batch: Batch) -> Loss:
        """The sum over the labelled places."""
        vectors, score, labels = answer(self.ask(batch), network)
        if network.training:
            return Loss(self.label_loss(vectors, score, labels, self.smoothing), len(labels))
        right = int((score(vectors).argmax(dim=-1) == labels).sum())
        return Loss(self.label_loss(vectors, score, labels, 0.0), len(labels), {"accuracy": right})


def answer(asked: Asked, network: Any) -> tuple[Tensor, Callable[[Tensor], Tensor], Tensor]:
    """The vectors at the labelled places, what makes scores of them, and the labels.

    Where the head scores each place alone, it is taken off while the network runs: places without a label are then
    never scored, and a loss that works piece by piece need not hold all scores.
    """
    labels, head = asked.labels, network.head
    score: Callable[[Tensor], Tensor] = _as_it_is
    if not isinstance(head, EachToken):
        logits = asked.call(network).logits
        if logits is None:
            raise ValueError("the network has no head that gives labels: this objective needs one")
        vectors = logits
    else:
        network.head = None
        try:
            vectors = asked.call(network).hidden
        finally:
            network.head = head
        score = _scorer(head)
    labelled = labels != IGNORED
    if bool(labelled.all()):
        return vectors, score, labels
    return vectors[labelled], score, labels[labelled]


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _scorer(head: EachToken) -> Callable[[Tensor], Tensor]:
    def score(vectors: Tensor) -> Tensor:
        rows = Rows.of((max(1, len(vectors)),), vectors.device)  # which it does not look at
        return torch.as_tensor(head(vectors, rows).words)

    return score
