"""A network that scores, for each text, only the tokens of its shortlist.

What is scored belongs to the source: `encode` looks up the list of each text, and the lists go where the encoder's
output goes, when texts leave a batch, enter it, or are spread over beams. So neither the searches nor the core know
anything of it: outside of its list, a text's scores are -inf.

The rows of the vocabulary's matrix that some text of the batch needs are put together when the batch changes. They are
laid out for the compiled product, where there is one; torch multiplies them as they are, for to lay them out as it does
for a network that stays takes longer than a few tokens do.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import LEVELS, TINY, Rounded
from regard.engine.linear import Affine, Packed, Plain
from regard.engine.linear_int8 import ByInstruction, BySixteenBits
from regard.engine.modules_native import InPanels
from regard.engine.modules_torch import QuickLanguageModel
from regard.engine.shortlist import Shortlist
from regard.transformer.attention import Source
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import Scored, Scores, Vectors
from regard.transformer.network import EncoderDecoder, Output
from regard.transformer.packing import AnyMask, TargetIds, TargetMask, TokenIds, enter


class Lists:
    """The lists of some texts, and all tokens that are in one of them."""

    def __init__(self, texts: Sequence[Int[Tensor, " _"]], union: Int[Tensor, " union"] | None = None) -> None:
        self.texts = list(texts)
        self.union = torch.unique(torch.cat(self.texts)) if union is None else union
        self.matrix: nn.Module | None = None
        """The rows of the vocabulary's matrix for the union, once they are needed."""

    @cached_property
    def columns(self) -> Int[Tensor, " union"]:
        """The union, of the type that places are counted in."""
        return self.union.long()

    @cached_property
    def outside(self) -> Bool[Tensor, "texts union"]:
        """Which tokens of the union are not in the list of a text."""
        found = torch.ones(len(self.texts), len(self.union), dtype=torch.bool)
        for row, listed in zip(found, self.texts, strict=True):
            row[torch.searchsorted(self.union, listed)] = False
        return found

    def keep(self, order: Sequence[int]) -> Lists:
        """The lists of these texts. What is put together stays so, unless most of it has become useless."""
        kept = Lists([self.texts[row] for row in order], self.union)
        kept.outside = self.outside[torch.tensor(order)]
        if 2 * int((~kept.outside).any(dim=0).sum()) < len(self.union):
            return Lists(kept.texts)
        kept.matrix = self.matrix
        return kept

    def add(self, other: Lists) -> Lists:
        """The lists of other texts behind these."""
        return Lists([*self.texts, *other.texts])


@dataclass(frozen=True)
class ListedSource(Source):
    """What a decoder attends to, with the lists of its texts."""

    lists: Lists = field(kw_only=True)

    def keep(self, order: Sequence[int]) -> ListedSource:
        """These rows, in this order."""
        kept = super().keep(order)
        return ListedSource(kept.hidden, kept.rows, kept.copies, lists=self.lists.keep(order))

    def add(self, other: Source) -> ListedSource:
        """The rows of another source behind these."""
        assert isinstance(other, ListedSource)
        both = super().add(other)
        return ListedSource(both.hidden, both.rows, both.copies, lists=self.lists.add(other.lists))


class Asked(threading.local):
    """The texts that are being read; each thread reads its own."""

    source: ListedSource | None = None


class ListedLanguageModel(nn.Module):
    """Scores the tokens of the lists; all others are impossible."""

    def __init__(self, plain: LanguageModel | QuickLanguageModel) -> None:
        super().__init__()
        self.transform = plain.transform
        self.scale = plain.scale if isinstance(plain, LanguageModel) else 1.0
        self.table = _table(plain)
        self.vocabulary = self.table.vocabulary
        self.asked = Asked()

    def forward(self, x: Vectors, rows: Rows) -> Scores:
        """The scores of each vector. Vectors of a text stand side by side, those of its beams one after the other."""
        assert self.asked.source is not None
        lists, copies = self.asked.source.lists, self.asked.source.copies
        if lists.matrix is None:
            lists.matrix = self.table.rows(lists.union)
        if self.transform is not None:
            x = self.transform(x)
        if self.scale != 1:
            x = x * self.scale
        outside = lists.outside
        if len(x) != len(outside):
            each = [sum(rows.lengths[at : at + copies]) for at in range(0, rows.batch, copies)]
            outside = outside.repeat_interleave(torch.tensor(each), dim=0)
        found = lists.matrix(x).masked_fill_(outside, -torch.inf)
        scores = found.new_full((len(x), self.vocabulary), -torch.inf)
        return Scores(words=scores.scatter_(1, lists.columns.expand(len(x), -1), found))


class Listed(EncoderDecoder):
    """A network whose texts are written with the tokens of their shortlists. All other parts are the network's own."""

    head: ListedLanguageModel

    def __init__(self, network: EncoderDecoder, shortlist: Shortlist, always: Collection[int] = ()) -> None:
        nn.Module.__init__(self)
        if not isinstance(network.head, LanguageModel | QuickLanguageModel):
            raise ValueError("a shortlist is for networks that write: the head of this one does not score words")
        self.config, self.training = network.config, network.training
        self.source, self.target = network.source, network.target
        self.encoder, self.decoder = network.encoder, network.decoder
        self.head = ListedLanguageModel(network.head)
        self.shortlist, self.always = shortlist, sorted(set(always))

    def encode(self, tokens: TokenIds, mask: AnyMask = None, *, rows: Rows | None = None) -> ListedSource:
        """Read the source, and look up the list of each of its rows."""
        source, entered = super().encode(tokens, mask, rows=rows), enter(tokens, mask, rows)
        assert isinstance(entered.tokens, Tensor)
        texts = torch.split(entered.tokens, list(entered.rows.lengths))
        lists = Lists([self.shortlist.of(text.tolist(), self.always) for text in texts])
        return ListedSource(source.hidden, source.rows, source.copies, lists=lists)

    def forward(
        self,
        source: TokenIds | Source,
        target: TargetIds,
        mask: AnyMask = None,
        target_mask: TargetMask = None,
        cache: Cache | None = None,
        *,
        rows: Rows | None = None,
        target_rows: Rows | None = None,
        scored: Scored = Scored.ALL,
    ) -> Output:
        """Read the source (or what `encode` made of it) and the target so far."""
        listed = source if isinstance(source, Source) else self.encode(source, mask, rows=rows)
        assert isinstance(listed, ListedSource)
        self.head.asked.source = listed
        try:
            return super().forward(
                listed, target, target_mask=target_mask, cache=cache, target_rows=target_rows, scored=scored
            )
        finally:
            self.head.asked.source = None


@dataclass(frozen=True)
class Table:
    """The matrix of a vocabulary, of which rows are taken."""

    weight: Float[Tensor, "vocabulary model"]
    bias: Float[Tensor, " vocabulary"] | None

    @property
    def vocabulary(self) -> int:
        """How many rows there are."""
        return len(self.weight)

    def rows(self, chosen: Int[Tensor, " chosen"]) -> nn.Module:
        """The matrix of these tokens."""
        return Plain(Affine(self.weight[chosen], _of(self.bias, chosen)))


@dataclass(frozen=True)
class ByteTable:
    """The same in levels."""

    weight: Rounded
    bias: Float[Tensor, " vocabulary"] | None
    by_instruction: bool
    """Whether the machine has a quick instruction for products of bytes."""

    @property
    def vocabulary(self) -> int:
        """How many rows there are."""
        return len(self.weight.levels)

    def rows(self, chosen: Int[Tensor, " chosen"]) -> nn.Module:
        """The matrix of these tokens."""
        weight = Rounded(self.weight.levels[chosen], self.weight.scale[chosen])
        affine = Affine(weight, _of(self.bias, chosen))
        return ByInstruction(affine) if self.by_instruction else WholeNumbers(affine)


@dataclass(frozen=True)
class PanelTable:
    """The same in panels, of floats or of bytes."""

    matrix: InPanels

    @property
    def vocabulary(self) -> int:
        """How many rows there are."""
        return self.matrix.outputs

    def rows(self, chosen: Int[Tensor, " chosen"]) -> nn.Module:
        """The matrix of these tokens."""
        return self.matrix.only(chosen)


class WholeNumbers(nn.Module):
    """Levels multiplied as float32. Sums of whole numbers up to 2²⁴ are exact in it, so this is what `BySixteenBits`
    computes; it is slower for a matrix that stays, and quicker for one that is used a few times."""

    bias: Tensor | None

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        assert isinstance(affine.weight, Rounded)
        self.levels = nn.Buffer(affine.weight.levels.float(), persistent=False)
        self.scale = nn.Buffer(affine.weight.scale / LEVELS, persistent=False)
        self.register_buffer("bias", affine.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """x·weightᵀ + bias, in levels."""
        top = x.abs().amax(dim=-1, keepdim=True).clamp_min_(TINY)
        found = nn.functional.linear((x / top).mul_(LEVELS).round_(), self.levels).mul_(self.scale)
        return found.mul_(top) if self.bias is None else torch.addcmul(self.bias, found, top)


def _of(bias: Tensor | None, chosen: Tensor) -> Tensor | None:
    return None if bias is None else bias[chosen]


def _table(head: LanguageModel | QuickLanguageModel) -> Table | ByteTable | PanelTable:
    """The numbers of a head's matrix, taken out of whatever layout it has."""
    if isinstance(head, LanguageModel):
        return Table(head.output.weight.detach(), None if head.bias is None else head.bias.detach())
    match head.matrix:
        case InPanels() as matrix:
            return PanelTable(matrix)
        case ByInstruction() as matrix:
            return ByteTable(Rounded(matrix.levels, matrix.scale * LEVELS), matrix.bias, by_instruction=True)
        case BySixteenBits() as matrix:
            packed = torch.ops.quantized.linear_unpack(matrix.levels)[0]
            scale = packed.q_per_channel_scales().float()
            return ByteTable(Rounded(packed.int_repr(), scale), matrix.bias, by_instruction=False)
        case Packed() as matrix:
            return Table(matrix.weight.to_dense(), matrix.bias)
        case Plain() as matrix:
            return Table(matrix.weight, matrix.bias)
        case other:
            raise TypeError(f"no rows can be taken of {type(other).__name__}")
