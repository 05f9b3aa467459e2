"""What the vectors are used for: the last layers of a network, after its stack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.adaptive import AdaptiveTokens, Table, steps
from regard.transformer.config import AtToken, HighestToken, OutputBias, Pooling, Weights
from regard.transformer.embedding import Given, Tokens
from regard.transformer.feedforward import ACTIVATIONS
from regard.transformer.patches import Patches
from regard.transformer.rows import Rows

Vectors = Float[Tensor, "tokens model"]


@dataclass(frozen=True)
class Scores:
    """What a head says: of each token, of each row, or both."""

    words: Float[Tensor, "tokens labels"] | None = None
    sentence: Float[Tensor, "batch sentence_labels"] | None = None


class Transform(nn.Module):
    """A layer, an activation, and perhaps a norm."""

    def __init__(self, design: config.Transform, dim: int, output_dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, output_dim)
        self.activation = ACTIVATIONS[design.activation]
        self.norm = normalization.build(design.norm, output_dim) if design.norm else None

    def forward(self, x: Float[Tensor, "*any dim"]) -> Float[Tensor, "*any output"]:
        """Each vector transformed."""
        x = self.activation(self.dense(x))
        return x if self.norm is None else self.norm(x)


class LanguageModel(nn.Module):
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


class AdaptiveLanguageModel(nn.Module):
    """Log-probabilities of all tokens, step by step."""

    def __init__(self, design: config.AdaptiveLanguageModel, model_dim: int, tokens: AdaptiveTokens) -> None:
        super().__init__()
        self.steps = steps(tokens.design)
        own = AdaptiveTokens(tokens.design, model_dim)
        self.tables = tokens.tables if design.tables is Weights.TIED else own.tables
        self.projections = nn.ModuleList(
            (tokens if tie is Weights.TIED else own).projections[i] for i, tie in enumerate(design.projections)
        )
        self.biases = nn.ParameterList(torch.empty(end - start) for start, end, _ in self.steps)
        others = len(self.steps) - 1
        self.step_weight = nn.Parameter(torch.empty(others, tokens.design.dim)) if others else None
        self.step_bias = nn.Parameter(torch.empty(others)) if others else None

    def forward(self, x: Float[Tensor, "tokens model"], rows: Rows) -> Scores:
        """The log-probabilities at each position."""
        del rows
        said = []
        first: Tensor | None = None
        for step, (table, project) in enumerate(zip(self.tables, self.projections, strict=True)):
            assert isinstance(table, Table)
            assert isinstance(project, nn.Linear)
            weight: Tensor = table.weight
            bias: Tensor = self.biases[step]
            if step == 0 and self.step_weight is not None and self.step_bias is not None:
                weight, bias = torch.cat([weight, self.step_weight]), torch.cat([bias, self.step_bias])
            scores = nn.functional.linear(x @ project.weight, weight, bias).log_softmax(dim=-1)
            if first is None:
                first, said = scores, [scores[:, : self.steps[0][1]]]
            else:
                said.append(scores + first[:, self.steps[0][1] + step - 1, None])
        return Scores(words=torch.cat(said, dim=1))


class Classification(nn.Module):
    """Scores every label, once for each row."""

    def __init__(self, design: config.Classification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.input_dropout = nn.Dropout(design.input_dropout)
        self.transform = Transform(design.transform, model_dim, model_dim) if design.transform else None
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of each row."""
        pooled = self.input_dropout(pool(self.pooling, x, rows))
        if self.transform is not None:
            pooled = self.transform(pooled)
        return Scores(sentence=self.output(self.dropout(pooled)))


class Pooler(nn.Module):
    """Gives one vector for each row, for use as features."""

    def __init__(self, design: config.Pooler, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.transform = Transform(design.transform, model_dim, model_dim)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The vector of each row."""
        return Scores(sentence=self.transform(pool(self.pooling, x, rows)))


class LooksForTokens(nn.Module):
    """A head that is called with the tokens too, because it looks for one of them."""


class Features(LooksForTokens):
    """Gives one vector for each row, to be compared with others."""

    def __init__(self, design: config.Features, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.norm = normalization.build(design.norm, model_dim) if design.norm else None
        self.projection = None if design.projection is None else nn.Linear(model_dim, design.projection, bias=False)

    def forward(self, x: Vectors, rows: Rows, tokens: Given) -> Scores:
        """The vector of each row."""
        if isinstance(self.pooling, Pooling):
            pooled = pool(self.pooling, x, rows)
        else:
            assert isinstance(tokens, Tensor)
            pooled = x[place(self.pooling, tokens, rows)]
        if self.norm is not None:
            pooled = self.norm(pooled)
        return Scores(sentence=pooled if self.projection is None else self.projection(pooled))


class PatchClassification(nn.Module):
    """Scores every label, once for each image, from the mean of its patches."""

    def __init__(self, design: config.PatchClassification, model_dim: int) -> None:
        super().__init__()
        self.pooling = design.pooling
        self.unused_norm = normalization.build(design.unused_norm, model_dim)
        self.output = nn.Linear(model_dim, design.labels)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of each image."""
        return Scores(sentence=self.output(pool(self.pooling, x, rows)))


class Tagging(nn.Module):
    """Scores every label at every position; an answer span is tagging with two labels, start and end."""

    def __init__(self, design: config.Tagging, model_dim: int) -> None:
        super().__init__()
        self.transform = Transform(design.transform, model_dim, model_dim) if design.transform else None
        self.dropout = nn.Dropout(design.dropout)
        self.output = nn.Linear(model_dim, design.labels, design.bias)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores at each position."""
        del rows
        if self.transform is not None:
            x = self.transform(x)
        return Scores(words=self.output(self.dropout(x)))


class AnswerSearch(nn.Module):
    """Finds answer spans by search: an end is scored for a given start, and so is whether there is an answer at all."""

    def __init__(self, design: config.AnswerSearch, model_dim: int) -> None:
        super().__init__()
        self.starts, self.ends = design.starts, design.ends
        self.start = nn.Linear(model_dim, 1)
        self.end_transform = nn.Linear(2 * model_dim, model_dim)
        self.end_norm = normalization.build(design.norm, model_dim)
        self.end = nn.Linear(model_dim, 1)
        self.answer_transform = nn.Linear(2 * model_dim, model_dim)
        self.answer = nn.Linear(model_dim, 1, bias=False)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """At each place, the score that the answer starts here and, if it starts at the best place, that it ends here;
        for each row, whether there is an answer."""
        starts = self.start(x)[:, 0]
        best = torch.stack([part.argmax() for part in torch.split(starts, list(rows.lengths))]) + rows.first
        ends = self.end_scores(x, x[best][rows.row_of])
        chance = torch.cat([part.softmax(dim=0) for part in torch.split(starts, list(rows.lengths))])
        expected = x.new_zeros(rows.batch, x.shape[1]).index_add(0, rows.row_of, chance[:, None] * x)
        return Scores(torch.stack([starts, ends], dim=1), self.answerable(expected, x[rows.last]))

    def end_scores(self, x: Vectors, start: Vectors) -> Float[Tensor, " tokens"]:
        """The score that an answer which starts at `start` ends at `x`."""
        both = torch.tanh(self.end_transform(torch.cat([x, start], dim=-1)))
        return self.end(self.end_norm(both))[:, 0]

    def answerable(
        self, start: Float[Tensor, "batch model"], whole: Float[Tensor, "batch model"]
    ) -> Float[Tensor, "batch 1"]:
        """The score that there is no answer, from the vector of the start and that of the row."""
        return self.answer(torch.tanh(self.answer_transform(torch.cat([start, whole], dim=-1))))

    def search(self, x: Vectors, rows: Rows) -> list[list[tuple[float, int, int]]]:
        """For each row, spans from the best down: the probability of start times end, the start and the end."""
        found = []
        for row in torch.split(x, list(rows.lengths)):
            chance, starts = self.start(row)[:, 0].softmax(dim=0).topk(min(self.starts, len(row)))
            spans = []
            for likely, start in zip(chance.tolist(), starts.tolist(), strict=True):
                ends = self.end_scores(row, row[start].expand_as(row)).softmax(dim=0).topk(min(self.ends, len(row)))
                spans += [(likely * p, start, end) for p, end in zip(*map(Tensor.tolist, ends), strict=True)]
            found.append(sorted(spans, reverse=True))
        return found


class TwoHeads(nn.Module):
    """A head over the tokens and one over the whole row."""

    def __init__(self, design: config.TwoHeads, model_dim: int, tokens: Tokens) -> None:
        super().__init__()
        self.words = LanguageModel(design.words, model_dim, tokens)
        self.sentence = Classification(design.sentence, model_dim)

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of both."""
        return Scores(self.words(x, rows).words, self.sentence(x, rows).sentence)


def pool(pooling: Pooling, x: Vectors, rows: Rows) -> Float[Tensor, "batch model"]:
    """One vector for each row."""
    match pooling:
        case Pooling.FIRST:
            return x[rows.first]
        case Pooling.LAST:
            return x[rows.last]
        case Pooling.MEAN:
            total = x.new_zeros(rows.batch, x.shape[1]).index_add(0, rows.row_of, x)
            return total / torch.tensor(rows.lengths, device=x.device)[:, None]
        case Pooling.MEAN_AFTER_FIRST:
            later = rows.columns > 0
            total = x.new_zeros(rows.batch, x.shape[1]).index_add(0, rows.row_of[later], x[later])
            return total / (torch.tensor(rows.lengths, device=x.device)[:, None] - 1)


def place(pooling: AtToken | HighestToken, tokens: Int[Tensor, " tokens"], rows: Rows) -> Int[Tensor, " batch"]:
    """Where the token stands that each row is pooled at: its first place, if there are several."""
    match pooling:
        case AtToken(token=token):
            found = tokens == token
        case HighestToken():
            lowest = tokens.new_zeros(rows.batch)
            found = tokens == lowest.scatter_reduce(0, rows.row_of, tokens, "amax")[rows.row_of]
    end = len(tokens)
    at = torch.arange(end, device=tokens.device).where(found, end)
    first = tokens.new_full((rows.batch,), end).scatter_reduce(0, rows.row_of, at, "amin")
    if bool((first == end).any()):
        row = int((first == end).nonzero()[0, 0])
        raise ValueError(f"row {row} is to be pooled at {pooling}, and has no such token: end every text with it")
    return first


AnyHead = (
    LanguageModel
    | AdaptiveLanguageModel
    | Classification
    | Pooler
    | Features
    | PatchClassification
    | Tagging
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
        case config.Pixels(count=count):
            built = Tagging(config.Tagging(labels=count, transform=None, bias=True), model_dim)
        case config.Tagging():
            built = Tagging(design, model_dim)
        case config.Span(labels=labels, dropout=dropout):
            built = Tagging(config.Tagging(labels=labels, transform=None, bias=True, dropout=dropout), model_dim)
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
