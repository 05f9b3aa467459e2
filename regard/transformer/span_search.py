"""Answer spans found by search, as XLNet does it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.batch_layout import Rows
from regard.transformer.head_base import Scores, Vectors


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
