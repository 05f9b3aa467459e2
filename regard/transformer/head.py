"""Heads: the layers after the stack, which compute logits from hidden states."""

from __future__ import annotations

import torch
from torch import nn

from regard.transformer import config
from regard.transformer.adaptive import AdaptiveLanguageModel, AdaptiveTokens
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import OutputBias, Pooling, Weights
from regard.transformer.embedding import Tokens
from regard.transformer.head_base import HeadOutput, HiddenStates, LinearArguments, PerTokenHead, Transform
from regard.transformer.patches import Patches
from regard.transformer.pooling import Classification, Features, PatchClassification, Pooler
from regard.transformer.span_search import AnswerSearch


class LanguageModel(PerTokenHead):
    """Language-modelling head: logits of all tokens of the vocabulary at each position."""

    def __init__(self, design: config.LanguageModel, model_dim: int, tokens: Tokens) -> None:
        super().__init__()
        dim = model_dim if design.weights is Weights.OWN and design.transform is None else tokens.weight.shape[1]
        self.transform = Transform(design.transform, model_dim, dim) if design.transform else None
        self.scale = design.scale
        self.output = tokens if design.weights is Weights.TIED else Tokens(design.vocabulary, dim)
        self.bias = None
        if design.bias is not OutputBias.NONE:
            trainable = design.bias is OutputBias.LEARNT
            self.bias = nn.Parameter(torch.zeros(design.vocabulary), requires_grad=trainable)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits at each position."""
        del layout
        return HeadOutput(token_logits=nn.functional.linear(*self.output_projection(x)))

    def output_projection(self, hidden: HiddenStates) -> LinearArguments:
        """Return the input of the output projection (hidden states after transform and scale), its weight and bias."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        return hidden * self.scale if self.scale != 1 else hidden, self.output.weight, self.bias


class TokenScores(PerTokenHead):
    """A linear layer at each position: labels of tags, start and end of an answer, pixels of a patch."""

    def __init__(self, design: config.TokenScores, model_dim: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits at each position."""
        del layout
        return HeadOutput(token_logits=self.output(self.dropout(x)))


class ReplacedTokens(PerTokenHead):
    """Replaced-token detection (ELECTRA): one logit at each position."""

    def __init__(self, design: config.ReplacedTokens, model_dim: int) -> None:
        super().__init__()
        self.transform = Transform(design.transform, model_dim, model_dim)
        self.output = nn.Linear(model_dim, 1)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logit at each position."""
        del layout
        return HeadOutput(token_logits=self.output(self.transform(x)))


class TwoHeads(nn.Module):
    """A language-modelling head and a sequence classification head."""

    def __init__(self, design: config.TwoHeads, model_dim: int, tokens: Tokens) -> None:
        super().__init__()
        self.words = LanguageModel(design.words, model_dim, tokens)
        self.sentence = Classification(design.sentence, model_dim)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits of both heads."""
        return HeadOutput(self.words(x, layout).token_logits, self.sentence(x, layout).sequence_logits)


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
    """Build the head of a config."""
    module: AnyHead
    match design:
        case config.LanguageModel():
            module = LanguageModel(design, model_dim, _token_table(tokens))
        case config.AdaptiveLanguageModel():
            if not isinstance(tokens, AdaptiveTokens):
                raise ValueError("AdaptiveLanguageModel needs an AdaptiveTokens embedding")
            module = AdaptiveLanguageModel(design, model_dim, tokens)
        case config.Classification():
            module = Classification(design, model_dim)
        case config.Pooler():
            module = Pooler(design, model_dim)
        case config.Features(pooling=pooling):
            if not isinstance(pooling, Pooling):
                _token_table(tokens)
            module = Features(design, model_dim)
        case config.PatchClassification():
            module = PatchClassification(design, model_dim)
        case config.TokenScores():
            module = TokenScores(design, model_dim)
        case config.ReplacedTokens():
            module = ReplacedTokens(design, model_dim)
        case config.AnswerSearch():
            module = AnswerSearch(design, model_dim)
        case config.TwoHeads():
            module = TwoHeads(design, model_dim, _token_table(tokens))
    return module


def _token_table(tokens: Tokens | AdaptiveTokens | Patches) -> Tokens:
    """Return the token embedding, for heads that need one; raise ValueError if the network has none."""
    if isinstance(tokens, Patches):
        raise ValueError("this head needs token embeddings, but the network embeds image patches: choose another head")
    if isinstance(tokens, AdaptiveTokens):
        raise ValueError("an AdaptiveTokens embedding needs the head AdaptiveLanguageModel")
    return tokens
