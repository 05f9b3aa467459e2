"""The protocol of objectives: they return the summed loss of a batch, and the number of its terms.

Never a mean: a mean of means is wrong when batches differ in size. The loop sums losses and counts over an optimizer
step and divides once, so the loss is per token for any gradient accumulation and any batch shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeGuard, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batches import Batch
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.training.modules.draw_scope import current_scope, enter_scope
from regard.training.modules.fused_modules import lm_head_loss
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.head_base import VocabularyHead


def forward_batch(network: Any, batch: Batch) -> Any:
    """Run a network on the column `tokens`, and on `segments` if it distinguishes them."""
    tokens, uses_segments = batch["tokens"], network.reads_segments and "segments" in batch.columns
    segments = {"segments": batch["segments"].values} if uses_segments else {}
    return network(tokens.values, layout=tokens.layout, **segments)


@dataclass(frozen=True)
class Loss:
    """The loss of a network on a batch."""

    sum: Float[Tensor, ""]
    """The summed loss, with its autograd graph."""
    count: int
    """Number of summed terms: tokens or sequences."""
    correct: Mapping[str, int] = field(default_factory=dict)
    """Number of correct predictions by metric. Empty in training mode."""


@runtime_checkable
class Objective(Protocol):
    """A training objective.

    To add one: a file in `objectives`, its config in `recipe/objective_section.py`, and a case in `factory.py`.
    """

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Compute the loss of a network on a batch.

        Random numbers depend on the keys of the sequences if there are some (`regard/data/random_keys.py`), else on
        torch's generator.
        """


@dataclass(frozen=True)
class LabeledBatch:
    """A batch with its labels, and how to run a network on it."""

    forward: Callable[[Any, Batch], Any]
    """Runs a network on a batch, and returns its `Output`."""
    batch: Batch
    """The inputs."""
    labels: Int[Tensor, " positions"]
    """The label at each position; `IGNORE_INDEX` where there is none."""

    def duplicate(self) -> LabeledBatch:
        """Return a batch with all sequences, followed by all sequences again."""
        return replace(self, batch=self.batch.duplicate(), labels=self.labels.repeat(2))

    def second_copy(self) -> LabeledBatch:
        """Return the second half of `duplicate`: the same batch with other random draws."""
        return replace(self, batch=self.batch.second_copy())


HiddenStates = Float[Tensor, "positions model"]


def label_cross_entropy(
    hidden: HiddenStates, head: nn.Module | None, labels: Int[Tensor, " positions"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of the logits of a head; without a head, `hidden` are the logits.

    With label smoothing ε the target distribution is 1 − ε at the label plus ε spread evenly over all labels
    (Szegedy et al. 2015): −(1 − ε) · log p(label) − ε · mean of log p.
    """
    if uses_chunked_loss(head, hidden):
        return lm_head_loss(head, hidden, labels, label_smoothing)
    logits = compute_logits(head, hidden)
    return nn.functional.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum")


def uses_chunked_loss(head: object, hidden: HiddenStates) -> TypeGuard[VocabularyHead]:
    """Whether the loss is computed in chunks by the fused cross-entropy (`cross_entropy.py`)."""
    return isinstance(head, VocabularyHead) and hidden.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def compute_logits(head: nn.Module | None, hidden: HiddenStates) -> Float[Tensor, "positions labels"]:
    """Return the logits of a head; without a head, `hidden` are the logits."""
    if head is None:
        return hidden
    layout = BatchLayout.of((max(1, len(hidden)),), hidden.device)  # heads per token ignore it
    return torch.as_tensor(head(hidden, layout).token_logits)


@dataclass(frozen=True, kw_only=True)
class CrossEntropyObjective:
    """Base class of objectives with a label for each position or sequence: a token, a tag, a class."""

    has_perplexity: ClassVar[bool] = True
    """Whether labels are tokens, so that exp(loss) is a perplexity."""
    accuracy_ranks: ClassVar[tuple[int, ...]] = (1,)
    """For each of these k, the share of labels among the k most likely ones is a metric."""
    label_smoothing: float = 0.0
    """Probability mass spread evenly over all labels, in training mode."""

    def label_batch(self, batch: Batch) -> LabeledBatch:
        """Return the inputs and the labels for a batch."""
        raise NotImplementedError

    def loss(self, network: Any, batch: Batch) -> Loss:
        """Return the cross-entropy, summed over the labeled positions."""
        hidden, head, labels = forward_to_head(self.label_batch(batch), network)
        if network.training:
            return Loss(label_cross_entropy(hidden, head, labels, self.label_smoothing), len(labels))
        logits = compute_logits(head, hidden)
        correct = {
            "accuracy" if k == 1 else f"top{k}_accuracy": _count_in_top(logits, labels, k) for k in self.accuracy_ranks
        }
        return Loss(label_cross_entropy(hidden, head, labels, 0.0), len(labels), correct)


def _count_in_top(logits: Float[Tensor, "positions labels"], labels: Int[Tensor, " positions"], k: int) -> int:
    """Count the labels that are among the k most likely ones."""
    best = logits.topk(min(k, logits.shape[1]), dim=-1).indices if k > 1 else logits.argmax(dim=-1, keepdim=True)
    return int((best == labels[:, None]).sum())


HeadInputs = tuple[HiddenStates, nn.Module | None, Int[Tensor, " positions"]]
"""Hidden states, the head that computes their logits, and the labels."""


def forward_to_head(labeled: LabeledBatch, network: Any) -> HeadInputs:
    """Run a network up to its head. Returns the hidden states at the labeled positions, the head, and the labels.

    A head that works on each token separately (`per_token`) is not run here: no logits are computed for positions
    without a label, and a chunked loss does not store all logits. Other networks are run on whole sequences: then their
    logits are returned in place of hidden states, and no head.
    """
    labels, head = labeled.labels, getattr(network, "head", None)
    if not getattr(head, "per_token", False):
        head = None
    if head is not None:
        hidden = labeled.forward(network.without_head(), labeled.batch).hidden
    else:
        hidden = labeled.forward(network, labeled.batch).logits
        if hidden is None:
            raise ValueError("the network has no classification or language-modelling head, which this objective needs")
    has_label = labels != IGNORE_INDEX
    if bool(has_label.all()):
        return hidden, head, labels
    scope = current_scope() if network.training else None
    if scope is not None and len(scope.token_keys) == len(has_label):
        enter_scope(scope.layout, has_label)  # the head has dropout for these tokens
    return hidden[has_label], head, labels[has_label]
