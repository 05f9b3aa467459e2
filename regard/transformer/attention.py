"""Attention: softmax(Q·Kᵀ·scale + bias)·V, and the module that asks it with many heads at once.

Four things are kept apart: who may see whom (`mask.py`), how the equation is computed (`kernels.py`), how queries,
keys and values are made (`Projection`), and what is kept between steps (`cache.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention_kernel import Kernel
from regard.transformer.batch_layout import Group, Rows
from regard.transformer.cache import Kept
from regard.transformer.mask import Everything, Mask, Visible
from regard.transformer.position import Rotation, Waves

Heads = Float[Tensor, "tokens heads dim"]
KeyHeads = Float[Tensor, "key_tokens key_heads dim"]
EVERYTHING = Everything()


@dataclass(frozen=True)
class Source:
    """What a decoder attends to: an encoder's output. Its rows are kept, shared and added like those of a cache."""

    hidden: Float[Tensor, "tokens model"] | None
    """None: a cache holds the keys and values that were made of it."""
    rows: Rows
    copies: int = 1
    """How many rows of the target, side by side, look at each row: the beams of a text share what the encoder made."""

    @property
    def vectors(self) -> Float[Tensor, "tokens model"]:
        """What the encoder made."""
        if self.hidden is None:
            raise ValueError("only keys and values of this source were kept: go on with the cache that holds them")
        return self.hidden

    def let_go(self) -> Source:
        """The same without what the encoder made."""
        return replace(self, hidden=None)

    def keep(self, order: Sequence[int]) -> Source:
        """These rows, in this order."""
        hidden, rows = self.hidden, Rows.of([self.rows.lengths[row] for row in order], self.rows.device)
        if hidden is not None:
            parts = torch.split(hidden, list(self.rows.lengths))
            hidden = torch.cat([parts[row] for row in order])
        return replace(self, hidden=hidden, rows=rows)

    def add(self, other: Source) -> Source:
        """The rows of another source behind these."""
        if self.copies != other.copies:
            raise ValueError(f"rows for {other.copies} copies cannot stand behind rows for {self.copies}")
        rows = Rows.of((*self.rows.lengths, *other.rows.lengths), self.rows.device)
        kept = self.hidden is None or other.hidden is None
        return replace(self, hidden=None if kept else torch.cat([self.vectors, other.vectors]), rows=rows)

    def spread(self, copies: int) -> Source:
        """The same, for so many times as many rows of the target."""
        return replace(self, copies=self.copies * copies)

    def asking(self, target: Rows) -> Rows:
        """The rows of the target that look at the same row of the source, taken as one row of queries."""
        if self.copies == 1:
            return target
        lengths = [sum(target.lengths[at : at + self.copies]) for at in range(0, target.batch, self.copies)]
        return Rows.of(lengths, target.device)


@dataclass(frozen=True)
class Looking:
    """How one attention looks at a batch: the same for all blocks of a stack but for their own masks."""

    rows: Rows
    """The rows of the queries."""
    mask: Mask
    """Who may see whom."""
    position: Rotation | Waves | Float[Tensor, "#batch heads query key"] | None = None
    """What the positions of the stack give: angles to turn by, waves to score, or what is added to the scores (for the
    longest row: shorter ones use its upper left corner)."""
    known: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)
    """What is seen of a cache, worked out once for all blocks: their caches are filled alike."""

    def seen(self, kept: Kept, asked: Group) -> Visible:
        """What a group of queries sees of what is kept."""
        key = (id(self.mask), kept.lengths, asked.rows.start)
        if key not in self.known:
            seen = kept.visible(self.mask, asked.rows, self.rows.positions_of(asked))
            self.known[key] = self.mask, seen  # the mask is held, so that its id stays its own
        found: Visible = self.known[key][1]
        return found


class Projection(nn.Module):
    """Makes queries, keys and values: one matrix each, their output cut into heads."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        self.head_dim = design.head_dim
        self.query = nn.Linear(model_dim, design.heads * design.head_dim, design.bias)
        self.key = nn.Linear(model_dim, design.key_value_heads * design.head_dim, design.bias)
        self.value = nn.Linear(model_dim, design.key_value_heads * design.head_dim, design.bias)

    def forward(self, hidden: Float[Tensor, "tokens model"]) -> tuple[Heads, KeyHeads, KeyHeads]:
        """Query, key and value of the same tokens, for attention of a row to itself."""
        return self.asking(hidden), *self.answering(hidden)

    def asking(self, hidden: Float[Tensor, "tokens model"]) -> Heads:
        """The queries alone."""
        return self.query(hidden).unflatten(-1, (-1, self.head_dim))

    def answering(self, hidden: Float[Tensor, "key_tokens model"]) -> tuple[KeyHeads, KeyHeads]:
        """The keys and values alone."""
        key, value = self.key(hidden), self.value(hidden)
        return key.unflatten(-1, (-1, self.head_dim)), value.unflatten(-1, (-1, self.head_dim))


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, to the row itself or across to a source, their answers joined by `output`."""

    def __init__(self, design: config.Attention, model_dim: int) -> None:
        super().__init__()
        if min(design.heads, design.key_value_heads, design.head_dim) < 1:
            raise ValueError(f"attention needs heads of some size, found {design.heads} of {design.head_dim}")
        if design.heads % design.key_value_heads:
            raise ValueError(
                f"{design.heads} heads do not divide evenly among {design.key_value_heads} key_value_heads"
            )
        self.project = Projection(design, model_dim)
        self.kernel = Kernel(design.scale, design.dropout)
        self.output = nn.Linear(design.heads * design.head_dim, model_dim, design.output_bias)

    def forward(
        self,
        hidden: Float[Tensor, "tokens model"],
        looking: Looking,
        source: Source | None = None,
        kept: Kept | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Attend: to the row itself, or to `source`; with `kept`, also to what earlier steps left there."""
        if source is not None:
            return self.output(self._across(hidden, looking, source, kept))
        query, key, value = self.project(hidden)
        if isinstance(looking.position, Rotation):
            query, key = looking.position.turn(query), looking.position.turn(key)
        if kept is None:
            return self.output(self._rowwise(query, key, value, looking, looking.rows))
        kept.append(key, value, looking.rows)
        return self.output(self._with_kept(query, looking, kept))

    def _across(self, hidden: Tensor, looking: Looking, source: Source, kept: Kept | None) -> Tensor:
        query = self.project.asking(hidden)
        looking = Looking(source.asking(looking.rows), EVERYTHING, known=looking.known)
        if kept is None:
            key, value = self.project.answering(source.vectors)
            return self._rowwise(query, key, value, looking, source.rows)
        if kept.empty:
            kept.append(*self.project.answering(source.vectors), source.rows)
        return self._with_kept(query, looking, kept)

    def ask(
        self,
        query: Float[Tensor, "rows heads query dim"],
        asked: Group,
        at: Int[Tensor, "#rows query"],
        seen: Int[Tensor, "#rows key"],
        looking: Looking,
    ) -> tuple[Float[Tensor, "rows heads query dim"], Float[Tensor, "#rows heads query key"] | None]:
        """The query to use and what is added to the scores, when queries at these positions look at keys at those."""
        bias = looking.position
        if not isinstance(bias, Tensor):
            return query, None
        return query, (bias if len(bias) == 1 else bias[asked.rows])[:, :, : at.shape[1], : seen.shape[1]]

    def _rowwise(self, query: Heads, key: KeyHeads, value: KeyHeads, looking: Looking, key_rows: Rows) -> Tensor:
        """Keys and values side by side like the queries: group by group, and no padding is computed."""
        if query.device.type != "cpu" and not (looking.rows.uniform and key_rows.uniform):
            return self._padded(query, key, value, looking, key_rows)
        pairs = list(looking.rows.together(key_rows))
        queries = _parts(query, [asked for asked, _ in pairs])
        keys, values = (_parts(x, [answered for _, answered in pairs]) for x in (key, value))
        answers = []
        for (asked, answered), *parts in zip(pairs, queries, keys, values, strict=True):
            at = looking.rows.positions_of(asked)
            seen = key_rows.positions_of(answered) if key_rows is not looking.rows else at
            asking, bias = self.ask(parts[0], asked, at, seen, looking)
            visible = looking.mask.visible(asked.rows, at, seen)
            answers.append(_join(self.kernel(asking, parts[1], parts[2], visible, bias)))
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _padded(self, query: Heads, key: KeyHeads, value: KeyHeads, looking: Looking, key_rows: Rows) -> Tensor:
        """The same in one go, with padding: on a GPU one large computation beats many small ones."""
        rows, kept = looking.rows, Kept()
        kept.append(key, value, key_rows)
        everyone = Group(slice(0, rows.batch), slice(0, rows.tokens), rows.longest)
        # Keys stand in the rectangle from its left edge: count queries from where their row of keys starts.
        at = rows.positions_of(everyone) - torch.tensor(key_rows.starts, device=query.device)[:, None]
        keys, values, filled = kept.view(everyone.rows)
        seen = torch.arange(filled, device=query.device)[None]
        asking, bias = self.ask(rows.pad(query).transpose(1, 2), everyone, at, seen, looking)
        answer = self.kernel(asking, keys, values, kept.visible(looking.mask, everyone.rows, at), bias)
        return rows.pack(answer.transpose(1, 2)).flatten(1)

    def _with_kept(self, query: Heads, looking: Looking, kept: Kept) -> Tensor:
        """Keys and values from a cache: a rectangle in which each row is filled up to its own length."""
        answers = []
        for asked in looking.rows.groups:
            keys, values, filled = kept.view(asked.rows)
            at, seen = looking.rows.positions_of(asked), looking.rows.places(filled)
            asking, bias = self.ask(_split(query[asked.tokens], asked.count), asked, at, seen, looking)
            answers.append(_join(self.kernel(asking, keys, values, looking.seen(kept, asked), bias)))
        return answers[0] if len(answers) == 1 else torch.cat(answers)


def _parts(x: Heads, groups: Sequence[Group]) -> list[Float[Tensor, "_ heads _ dim"]]:
    """The tokens of each group, as rows. Cut in one go: the way back joins the gradients in one go, too."""
    parts = torch.split(x, [group.count * group.length for group in groups])
    return [_split(part, group.count) for part, group in zip(parts, groups, strict=True)]


def _split(x: Heads, rows: int) -> Float[Tensor, "rows heads length dim"]:
    return x.view(rows, -1, *x.shape[1:]).transpose(1, 2)


def _join(x: Float[Tensor, "rows heads length dim"]) -> Float[Tensor, "tokens all"]:
    return x.transpose(1, 2).flatten(2).flatten(0, 1)
