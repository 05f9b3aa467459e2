"""What the vectors are used for: the last layers of a network, after its stack."""

from __future__ import annotations

import torch
from torch import nn

from regard.transformer import config
from regard.transformer.adaptive import AdaptiveLanguageModel, AdaptiveTokens
from regard.transformer.batch_layout import Rows
from regard.transformer.config import OutputBias, Pooling, Weights
from regard.transformer.embedding import Tokens
from regard.transformer.head_base import EachToken, Scores, Transform, Vectors
from regard.transformer.patches import Patches
from regard.transformer.pooling import Classification, Features, PatchClassification, Pooler
from regard.transformer.span_search import AnswerSearch


class LanguageModel(EachToken):
    """Scores every token of the vocabulary at every position."""

    def __init__(self, design: config.LanguageModel, model_dim: int, tokens: Tokens) -> None:
        super().__init__()
        dim = model_dim if design.weights is Weights.OWN and design.transform is None else tokens.weight.shape[1]
        self.transform = Transform(design.transform, model_dim, dim) if design.transform else None
        self.scale = design.scale
        self.output = tokens if design.weights is Weights.TIED else Tokens(design.vocabulary, dim)
        self.bias = None
        if design.bias is not OutputBias.NONE:
            learnt = design.bias is OutputBias.LEARNT
            self.bias = nn.Parameter(torch.zeros(design.vocabulary), requires_grad=learnt)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores at each position."""
        del rows
        if self.transform is not None:
            x = self.transform(x)
        if self.scale != 1:
            x = x * self.scale
        return Scores(words=nn.functional.linear(x, self.output.weight, self.bias))


class TokenScores(EachToken):
    """One layer over each position: the labels of a tag, the start and the end of an answer, the pixels of a patch."""

    def __init__(self, design: config.TokenScores, model_dim: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores at each position."""
        del rows
        return Scores(words=self.output(self.dropout(x)))


class ReplacedTokens(EachToken):
    """Scores at every position whether the token was replaced."""

    def __init__(self, design: config.ReplacedTokens, model_dim: int) -> None:
        super().__init__()
        self.transform = Transform(design.transform, model_dim, model_dim)
        self.output = nn.Linear(model_dim, 1)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The score at each position."""
        del rows
        return Scores(words=self.output(self.transform(x)))


class TwoHeads(nn.Module):
    """A head over the tokens and one over the whole row."""

    def __init__(self, design: config.TwoHeads, model_dim: int, tokens: Tokens) -> None:
        super().__init__()
        self.words = LanguageModel(design.words, model_dim, tokens)
        self.sentence = Classification(design.sentence, model_dim)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of both."""
        return Scores(self.words(x, rows).words, self.sentence(x, rows).sentence)


AnyHead = (
    LanguageModel
    | AdaptiveLanguageModel
    | Classification
    | Pooler
    | Features
    | PatchClassification
    | TokenScores
    | ReplacedTokens
    | AnswerSearch
    | TwoHeads
)


def build(design: config.Head, model_dim: int, tokens: Tokens | AdaptiveTokens | Patches) -> AnyHead:
    """The head that a config names."""
    built: AnyHead
    match design:
        case config.LanguageModel():
            built = LanguageModel(design, model_dim, _table(tokens))
        case config.AdaptiveLanguageModel():
            if not isinstance(tokens, AdaptiveTokens):
                raise ValueError("an adaptive head needs adaptive tables")
            built = AdaptiveLanguageModel(design, model_dim, tokens)
        case config.Classification():
            built = Classification(design, model_dim)
        case config.Pooler():
            built = Pooler(design, model_dim)
        case config.Features(pooling=pooling):
            if not isinstance(pooling, Pooling):
                _table(tokens)
            built = Features(design, model_dim)
        case config.PatchClassification():
            built = PatchClassification(design, model_dim)
        case config.TokenScores():
            built = TokenScores(design, model_dim)
        case config.ReplacedTokens():
            built = ReplacedTokens(design, model_dim)
        case config.AnswerSearch():
            built = AnswerSearch(design, model_dim)
        case config.TwoHeads():
            built = TwoHeads(design, model_dim, _table(tokens))
    return built


def _table(tokens: Tokens | AdaptiveTokens | Patches) -> Tokens:
    """The token table, for heads that have to do with words."""
    if isinstance(tokens, Patches):
        raise ValueError("this network reads images, and the head is for words: choose another head")
    if isinstance(tokens, AdaptiveTokens):
        raise ValueError("adaptive tables need an AdaptiveLanguageModel")
    return tokens
