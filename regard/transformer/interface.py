"""What the rest of the package knows of a network: what it reads, what it predicts, its limits, how it generates.

Search, tasks, training and evaluation depend on these protocols only. A network that is not built from the modules of
this package can be used wherever it has these members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from regard.transformer.decoder_state import DecoderState


class Reads(Enum):
    """What a network reads, and how it is called. Batches of tokens are packed."""

    TOKENS = "tokens"
    """`network(tokens, layout=…)`, with `segments=…` if it has `reads_segments`."""
    SOURCE_AND_TARGET = "a source and a target"
    """`network(source, target, layout=…, target_layout=…)`."""
    IMAGE = "images"
    """`network(images)`."""
    TEXT_AND_IMAGE = "texts and images"
    """`network(tokens, images, layout=…)`."""


class Predicts(Enum):
    """What a network predicts."""

    NEXT_TOKEN = "the next token"
    MASKED_TOKEN = "masked tokens"
    LABEL = "a label"
    """A label, or a number, for each sequence or image."""
    TAGS = "tags"
    """A label for each token."""
    SPAN = "a span"
    """The first and last token of an answer."""
    SIMILARITY = "similarities"
    """The similarity of each text to each image."""
    REPLACED = "replaced tokens"
    """Whether each token was replaced (ELECTRA)."""
    PIXELS = "pixels"
    """The pixels of masked patches."""
    VECTORS = "vectors"
    """Hidden states only, of each token or pooled."""


@dataclass(frozen=True, kw_only=True)
class LengthLimits:
    """The vocabulary and the maximum lengths of one side of a network."""

    vocabulary: int
    """Number of tokens; 0 for images."""
    max_positions: int | None
    """Number of learned position embeddings: a hard limit."""
    context_length: int | None
    """The length that the network was designed for; longer sequences are possible if `max_positions` is None."""


@runtime_checkable
class NetworkInterface(Protocol):
    """A torch module that can be trained and evaluated. Its output has `logits`, and `hidden` if it has hidden states.

    The members may be properties, or plain attributes.
    """

    training: bool

    @property
    def reads(self) -> Reads:
        """What it reads."""

    @property
    def predicts(self) -> frozenset[Predicts]:
        """What it predicts; several if it has several heads."""

    @property
    def model_dim(self) -> int:
        """Size of the hidden states."""

    @property
    def limits(self) -> tuple[LengthLimits | None, LengthLimits]:
        """The limits of the source (None without one) and of the other tokens."""

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a sequence in training; None if there is no maximum."""

    @property
    def num_labels(self) -> int:
        """Number of labels or tags; 0 if it predicts none."""

    @property
    def reads_segments(self) -> bool:
        """Whether it distinguishes the segments of a sequence (two texts)."""

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run the network as `Reads` describes."""


@runtime_checkable
class GenerativeNetwork(NetworkInterface, Protocol):
    """A network that can generate tokens, if it predicts the next one."""

    @property
    def alignment_address(self) -> str | None:
        """Address of the attention weights that align the target with the source; None if there are none."""

    @property
    def scores_in_one_pass(self) -> bool:
        """Whether one call on whole sequences gives the same logits at each token as decode steps do."""

    def new_decoder_state(self, sources: Sequence[Sequence[int]] | None) -> DecoderState:
        """Return a state without target tokens; if the network reads a source, encode the sources."""
