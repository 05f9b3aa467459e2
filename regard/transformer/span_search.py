"""Answer span extraction by beam search over starts and ends, as in XLNet."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, normalization
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.head_base import HeadOutput, HiddenStates


class AnswerSearch(nn.Module):
    """Span search: end logits are conditioned on a start; a separate logit predicts that there is no answer."""

    def __init__(self, design: config.AnswerSearch, model_dim: int) -> None:
        super().__init__()
        self.starts, self.ends = design.starts, design.ends
        self.start = nn.Linear(model_dim, 1)
        self.end_transform = nn.Linear(2 * model_dim, model_dim)
        self.end_norm = normalization.build(design.norm, model_dim)
        self.end = nn.Linear(model_dim, 1)
        self.answer_transform = nn.Linear(2 * model_dim, model_dim)
        self.answer = nn.Linear(model_dim, 1, bias=False)

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return start and end logits at each position, and the no-answer logit of each sequence.

        End logits are conditioned on the best start, the no-answer logit on the expected hidden state of the start.
        """
        starts = self.start(x)[:, 0]
        best = torch.stack([part.argmax() for part in torch.split(starts, list(layout.lengths))]) + layout.first_indices
        ends = self.end_logits(x, x[best][layout.row_indices])
        probability = torch.cat([part.softmax(dim=0) for part in torch.split(starts, list(layout.lengths))])
        expected = x.new_zeros(layout.batch_size, x.shape[1]).index_add(0, layout.row_indices, probability[:, None] * x)
        return HeadOutput(torch.stack([starts, ends], dim=1), self.no_answer_logits(expected, x[layout.last_indices]))

    def end_logits(self, x: HiddenStates, start: HiddenStates) -> Float[Tensor, " tokens"]:
        """Return the logits that an answer with the start `start` ends at `x`."""
        joined = torch.tanh(self.end_transform(torch.cat([x, start], dim=-1)))
        return self.end(self.end_norm(joined))[:, 0]

    def no_answer_logits(
        self, start: Float[Tensor, "batch model"], last: Float[Tensor, "batch model"]
    ) -> Float[Tensor, "batch 1"]:
        """Return the logit that there is no answer, from the hidden states of the start and of the last token."""
        return self.answer(torch.tanh(self.answer_transform(torch.cat([start, last], dim=-1))))

    def search(self, x: HiddenStates, layout: BatchLayout) -> list[list[tuple[float, int, int]]]:
        """Return the spans of each sequence, best first: probability (start · end), start index and end index."""
        result = []
        for hidden in torch.split(x, list(layout.lengths)):
            length = len(hidden)
            probabilities, starts = self.start(hidden)[:, 0].softmax(dim=0).topk(min(self.starts, length))
            spans = []
            for probability, start in zip(probabilities.tolist(), starts.tolist(), strict=True):
                end_logits = self.end_logits(hidden, hidden[start].expand_as(hidden))
                ends = end_logits.softmax(dim=0).topk(min(self.ends, length))
                spans += [(probability * p, start, end) for p, end in zip(*map(Tensor.tolist, ends), strict=True)]
            result.append(sorted(spans, reverse=True))
        return result
