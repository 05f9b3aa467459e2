"""Configs of heads: the layers after the stack."""

import enum
from dataclasses import dataclass

from regard.transformer.config.common import Activation, Norm, OutputBias, Weights
from regard.transformer.interface import Predicts


class Pooling(enum.Enum):
    """How the hidden states of a sequence are pooled to one vector."""

    FIRST = "first"
    LAST = "last"
    MEAN = "mean"
    MEAN_AFTER_FIRST = "mean_after_first"
    """Mean of all but the first: of the patches of an image, without the class vector."""
    MAX = "max"
    """The maximum of each number."""
    MEAN_SQRT = "mean_sqrt"
    """Sum divided by the square root of the length."""
    WEIGHTED_MEAN = "weighted_mean"
    """Mean weighted by position: the last token counts most (for causal networks)."""


@dataclass(frozen=True, kw_only=True)
class AtToken:
    """Pool at the first occurrence of this token (CLIP: the end-of-text token)."""

    token: int
    """Id of the token."""


@dataclass(frozen=True, kw_only=True)
class HighestToken:
    """Pool at the first occurrence of the highest token id in the sequence: in CLIP the end-of-text token."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A linear layer, an activation and optionally a norm before the output layer of a head."""

    activation: Activation
    """Activation after the linear layer."""
    norm: Norm | None
    """Norm after the activation (masked-language-modelling head of BERT)."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """Logits of all tokens of the vocabulary at each position, for causal and masked language modelling."""

    vocabulary: int
    """Number of tokens."""
    transform: Transform | None
    """Transform before the output layer."""
    scale: float
    """Factor on the hidden states before the output layer (T5 1.0: 1/√model_dim)."""
    weights: Weights
    """Whether the output layer is tied to the token embedding."""
    bias: OutputBias
    """Bias added to the logits."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveLanguageModel:
    """Adaptive softmax over the clusters of `AdaptiveTokens`: log-probabilities of all tokens."""

    tables: Weights
    """Whether the output matrices are tied to the embedding matrices."""
    projections: tuple[Weights, ...]
    """The same for the projection of each cluster."""


@dataclass(frozen=True, kw_only=True)
class Classification:
    """Sequence classification: one logit per label from the pooled hidden states of each sequence."""

    labels: int
    """Number of labels: 1 for regression and for multiple choice (one logit per choice)."""
    pooling: Pooling
    """How each sequence is pooled to one vector."""
    transform: Transform | None
    """Transform before the output layer."""
    bias: bool
    """Whether the output layer has a bias."""
    input_dropout: float = 0.0
    """Dropout of the pooled vector."""
    dropout: float = 0.0
    """Dropout before the output layer."""


@dataclass(frozen=True, kw_only=True)
class Pooler:
    """One vector per sequence, for use as features."""

    pooling: Pooling
    """How each sequence is pooled to one vector."""
    transform: Transform
    """Transform of the pooled vector."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """An embedding of each sequence, for comparison with others: pooled, normalised, projected (CLIP)."""

    pooling: Pooling | AtToken | HighestToken
    """How each sequence is pooled to one vector."""
    norm: Norm | None
    """Norm of the pooled vector."""
    projection: int | None
    """Output size of the projection, a linear layer without bias; None for no projection."""


@dataclass(frozen=True, kw_only=True)
class PatchClassification:
    """Image classification: one logit per label from the mean of the patches (CLIP).

    The network was trained with the head `Features`. Published checkpoints still contain the norm of that head, which
    this head does not use.
    """

    labels: int
    """Number of labels."""
    pooling: Pooling
    """How each sequence is pooled to one vector."""
    unused_norm: Norm
    """The unused norm of published checkpoints."""


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """A linear layer on the hidden state of each token."""

    labels: int
    """Number of outputs per token."""
    bias: bool
    """Whether the linear layer has a bias."""
    dropout: float = 0.0
    """Dropout before the linear layer."""


@dataclass(frozen=True, kw_only=True)
class Tagging(TokenScores):
    """Token classification: one logit per label at each position."""


@dataclass(frozen=True, kw_only=True)
class Span(TokenScores):
    """Answer extraction: a start logit and an end logit at each position."""


@dataclass(frozen=True, kw_only=True)
class Pixels(TokenScores):
    """Prediction of the pixels of each patch (masked image modelling). `Patches.unpatchify` joins the patches."""


@dataclass(frozen=True, kw_only=True)
class ReplacedTokens:
    """Replaced-token detection (ELECTRA): one logit at each position."""

    transform: Transform
    """Transform before the output layer."""


@dataclass(frozen=True, kw_only=True)
class AnswerSearch:
    """Span search (XLNet): the best starts, the best ends for each of them, and a no-answer logit."""

    starts: int
    """Number of starts to try."""
    ends: int
    """Number of ends to try for each start."""
    norm: Norm
    """Norm before the output layer of the end logits."""


@dataclass(frozen=True, kw_only=True)
class TwoHeads:
    """A language-modelling head and a sequence classification head: BERT pretraining, GPT-2 double heads."""

    words: LanguageModel
    """The language-modelling head."""
    sentence: Classification
    """The sequence classification head: next-sentence prediction, multiple choice."""


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


def predictions(head: Head | None, token: Predicts, *tokens: Predicts) -> frozenset[Predicts]:
    """Return what a head predicts. `token` and `tokens` are the tokens that a language-modelling head predicts here."""
    match head:
        case LanguageModel() | AdaptiveLanguageModel():
            return frozenset({token, *tokens})
        case TwoHeads():
            return frozenset({token, *tokens, Predicts.LABEL})
        case Classification() | PatchClassification():
            return frozenset({Predicts.LABEL})
        case Tagging():
            return frozenset({Predicts.TAGS})
        case Span():
            return frozenset({Predicts.SPAN})
        case AnswerSearch():  # the label: whether there is an answer
            return frozenset({Predicts.SPAN, Predicts.LABEL})
        case ReplacedTokens():
            return frozenset({Predicts.REPLACED})
        case Pixels():
            return frozenset({Predicts.PIXELS})
        case Pooler() | Features() | None:
            return frozenset({Predicts.VECTORS})
