"""What the vectors are used for."""

import enum
from dataclasses import dataclass

from regard.transformer.config.common import Activation, Norm, OutputBias, Weights


class Pooling(enum.Enum):
    """How a row becomes one vector."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    MEAN_AFTER_FIRST = "mean_after_first"
    """The mean of all but the first: of an image's patches, without the class vector."""


@dataclass(frozen=True, kw_only=True)
class AtToken:
    """A row's vector is the one at the first place where this token stands (CLIP: the end of the text)."""

    token: int
    """The token's id."""


@dataclass(frozen=True, kw_only=True)
class HighestToken:
    """A row's vector is the one at its highest id, the first if there are several: in CLIP the end of the text."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A layer, an activation and perhaps a norm between the stack and the last layer of a head."""

    activation: Activation
    """The activation."""
    norm: Norm | None
    """The norm after it (BERT's masked-language-modelling head)."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A score for each token of the vocabulary at each position: causal and masked language modelling alike."""

    vocabulary: int
    """How many tokens there are."""
    transform: Transform | None
    """What comes before the last layer."""
    scale: float
    """What the vectors are multiplied by first (T5 1.0: 1/√model_dim)."""
    weights: Weights
    """The last layer's own matrix, or the token table's."""
    bias: OutputBias
    """What is added to the scores."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveLanguageModel:
    """Log-probabilities of all tokens, in the steps of `AdaptiveTokens`: first which step, then which token of it."""

    tables: Weights
    """The matrices' own, or the token tables'."""
    projections: tuple[Weights, ...]
    """The same of the projections, step by step."""


@dataclass(frozen=True, kw_only=True)
class Classification:
    """One score for each label from one vector for each row."""

    labels: int
    """How many labels: 1 for regression and for multiple choice (one score for each choice)."""
    pooling: Pooling
    """How the row becomes one vector."""
    transform: Transform | None
    """What comes before the last layer."""
    bias: bool
    """Whether the last layer has a bias."""
    input_dropout: float = 0.0
    """Dropout of the pooled vector."""
    dropout: float = 0.0
    """Dropout before the last layer."""


@dataclass(frozen=True, kw_only=True)
class Pooler:
    """One vector for each row, for use as features."""

    pooling: Pooling
    """How the row becomes one vector."""
    transform: Transform
    """What the vector goes through."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """One vector for each row, made to be compared with others: pooled, normed, projected (CLIP)."""

    pooling: Pooling | AtToken | HighestToken
    """How the row becomes one vector."""
    norm: Norm | None
    """The norm of that vector."""
    projection: int | None
    """The size to which a layer without bias brings it."""


@dataclass(frozen=True, kw_only=True)
class PatchClassification:
    """One score for each label from the mean of an image's patches (CLIP).

    Its network was trained with `Features`, whose norm stays with it, though nothing reads it any more: published
    files have it.
    """

    labels: int
    """How many labels."""
    pooling: Pooling
    """How the row becomes one vector."""
    unused_norm: Norm
    """The norm that stays."""


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """One layer over the vector of each token."""

    labels: int
    """How many scores it gives."""
    bias: bool
    """Whether the layer has a bias."""
    dropout: float = 0.0
    """Dropout before the layer."""


@dataclass(frozen=True, kw_only=True)
class Tagging(TokenScores):
    """One score for each label at each position."""


@dataclass(frozen=True, kw_only=True)
class Span(TokenScores):
    """Two scores at each position: that the answer starts here, that it ends here."""


@dataclass(frozen=True, kw_only=True)
class Pixels(TokenScores):
    """The pixels of each patch, guessed from its vector (masked image modelling). `Patches.picture` joins them."""


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens:
    """One score at each position: that the token was replaced by another (ELECTRA)."""

    transform: Transform
    """What comes before the last layer."""


@dataclass(frozen=True, kw_only=True)
class AnswerSearch:
    """Answer spans found by search: the best starts, for each of them the best ends, and whether there is an answer."""

    starts: int
    """How many starts are tried."""
    ends: int
    """How many ends for each of them."""
    norm: Norm
    """The norm before an end is scored."""


@dataclass(frozen=True, kw_only=True)
class TwoHeads:
    """A head over the tokens and one over the whole row: BERT's pretraining, GPT-2's double head."""

    words: LanguageModel
    """Scores the tokens."""
    sentence: Classification
    """Scores the row: next sentence, multiple choice."""


Head = (
    LanguageModel
    | AdaptiveLanguageModel
    | Classification
    | Pooler
    | Features
    | PatchClassification
    | Pixels
    | Tagging
    | Span
    | ReplacedTokens
    | AnswerSearch
    | TwoHeads
)
