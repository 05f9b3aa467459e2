"""Whole networks: what the parts of this folder make when they are put together.

A padded batch goes in as a rectangle with a mask, or packed with its `Rows`. At the door padding is taken out, and at
the exit the results are put back where their tokens stood, so nothing between ever sees it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, Union

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, head
from regard.transformer.attention import Source
from regard.transformer.batch_layout import Rows
from regard.transformer.cache import Cache, Memory
from regard.transformer.embedding import Embedding
from regard.transformer.head_base import EachToken, LooksForTokens, Scored, Scores
from regard.transformer.initialization import initialize
from regard.transformer.packing import AnyMask, Entered, TargetIds, TargetMask, TokenIds, enter, enter_images
from regard.transformer.patches import Images, MaskedImages, Patches
from regard.transformer.position import Learned
from regard.transformer.stack import Stack

if TYPE_CHECKING:
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream

    AnyNetwork = Union["EncoderOnly", "DecoderOnly", "EncoderDecoder", TwoStream, DualEncoder]  # noqa: UP007 - quotes

PART = 128
"""Tokens that are scored at a time where padding has to be put back: enough to keep a matrix product busy."""


@dataclass(frozen=True)
class Output:
    """What a network returns. Padded input gives padded output (zeros where no token stood), packed gives packed."""

    hidden: Float[Tensor, "*tokens model"]
    """The vectors after the last block."""
    logits: Float[Tensor, "*scored labels"] | None = None
    """The head's scores: of each token; of each row, where only its last token or the row as a whole is scored."""
    sentence: Float[Tensor, "batch sentence_labels"] | None = None
    """The scores of each row, where the head scores both."""
    cache: Cache | Memory | None = None
    """The cache that was given, now longer."""
    source: Source | None = None
    """What the decoder attended to: pass it again and the encoder need not run again."""


AnySelf = TypeVar("AnySelf", bound="Network")


class Network(nn.Module):
    """What all networks have: a config, a head, and the switch for gradient checkpointing."""

    config: config.Network
    head: nn.Module | None

    def train(self: AnySelf, mode: bool = True) -> AnySelf:
        """Switch to training. Weights that are transposed views of a file become memory of their own.

        Optimisers are quicker on what lies in order; and if one weight has to be copied, all are, so that the file can
        be let go.
        """
        weights = list(self.parameters()) if mode else []
        if not all(weight.is_contiguous() for weight in weights):
            for weight in weights:
                weight.data = weight.data.clone(memory_format=torch.contiguous_format)
        return super().train(mode)

    def headless(self: AnySelf) -> AnySelf:
        """The same network, all parts shared, without its head: for whoever does the head's work in another way."""
        body = copy.copy(self)
        body._modules = {**self._modules, "head": None}
        return body

    def recompute(self, on: bool = True) -> None:
        """Gradient checkpointing: train with less memory, at the price of computing each block twice."""
        for stack in self.modules():
            if isinstance(stack, Stack):
                stack.recompute = on

    def score(self, hidden: Float[Tensor, "tokens model"], entered: Entered) -> Scores:
        """What the head says of the vectors of a batch."""
        if isinstance(self.head, LooksForTokens):
            return self.head(hidden, entered.rows, entered.tokens)
        return Scores() if self.head is None else self.head(hidden, entered.rows)

    def _output(
        self,
        hidden: Tensor,
        entered: Entered,
        cache: Cache | Memory | None = None,
        source: Source | None = None,
        scored: Scored = Scored.ALL,
    ) -> Output:
        left = entered.leave(hidden)
        assert left is not None
        if scored is Scored.LAST:
            if len(hidden) > entered.rows.batch:
                alone = Rows.of((1,) * entered.rows.batch, entered.rows.device)
                hidden, entered = hidden[entered.rows.last], replace(entered, rows=alone)
            return Output(left, self.score(hidden, entered).words, None, cache, source)
        if isinstance(self.head, EachToken) and entered.places is not None and not torch.is_grad_enabled():
            parts = (self.head(part, entered.rows).words for part in torch.split(hidden, PART))
            return Output(left, entered.leave_in_parts(parts), None, cache, source)
        scores = self.score(hidden, entered)
        if scores.words is None:
            return Output(left, scores.sentence, None, cache, source)
        return Output(left, entered.leave(scores.words), scores.sentence, cache, source)


class EncoderOnly(Network):
    """Embedding, encoder, head: BERT, the vision Transformer."""

    def __init__(self, design: config.EncoderOnly) -> None:
        super().__init__()
        self.config = design
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.encoder = Stack(design.encoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def forward(
        self,
        tokens: TokenIds | Images | MaskedImages,
        mask: AnyMask = None,
        *,
        segments: TokenIds | None = None,
        rows: Rows | None = None,
    ) -> Output:
        """Read the tokens, or the images. `mask` is True at real tokens, or any mask of `mask.py`."""
        patches = self.embedding.tokens
        if isinstance(patches, Patches):
            entered = enter_images(tokens, mask, rows, patches)
        elif isinstance(tokens, MaskedImages) or tokens.is_floating_point():
            raise ValueError("this network reads token ids, not images")
        else:
            entered = enter(tokens, mask, rows)
        _check_length(entered.rows, self.embedding)
        x = self.embedding(entered.tokens, entered.rows, entered.pack(segments))
        return self._output(self.encoder(x, entered.rows, entered.mask), entered)


class DecoderOnly(Network):
    """Embedding, decoder, head: GPT-2, Llama."""

    def __init__(self, design: config.DecoderOnly) -> None:
        super().__init__()
        self.config = design
        self.model_dim = design.model_dim
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def new_cache(self) -> Cache | Memory:
        """An empty cache: pass it to every step, and give each step only the tokens that are new."""
        return self.decoder.new_memory() or self.decoder.new_cache()

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        cache: Cache | Memory | None = None,
        *,
        segments: TokenIds | None = None,
        rows: Rows | None = None,
        source: Source | None = None,
        scored: Scored = Scored.ALL,
    ) -> Output:
        """Read the tokens, each seeing those before it; with a cache, also those of the steps before."""
        if not isinstance(cache, Cache):
            batch = rows.batch if rows else len(tokens)
            cache = self.decoder.begin(cache, batch, self.embedding.like(self.model_dim))
        entered = enter(tokens, mask, rows, cache)
        _check_length(entered.rows, self.embedding)
        _check_rows(entered.rows, source)
        x = self.embedding(entered.tokens, entered.rows, entered.pack(segments))
        return self._output(self.decoder(x, entered.rows, entered.mask, source, cache), entered, cache, source, scored)


class EncoderDecoder(Network):
    """An encoder reads the source, a decoder writes the target: 2017, BART, T5, Marian."""

    def __init__(self, design: config.EncoderDecoder) -> None:
        super().__init__()
        self.config = design
        self.source = Embedding(design.source, design.model_dim)
        self.target = Embedding(design.target, design.model_dim, shared=self.source.tokens)
        self.encoder = Stack(design.encoder, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.target.tokens) if design.head else None

    def new_cache(self) -> Cache:
        """An empty cache: pass it to every step, and give each step only the target tokens that are new."""
        return self.decoder.new_cache()

    def encode(self, tokens: TokenIds, mask: AnyMask = None, *, rows: Rows | None = None) -> Source:
        """Read the source, once for all steps."""
        entered = enter(tokens, mask, rows)
        _check_length(entered.rows, self.source)
        x = self.source(entered.tokens, entered.rows)
        return Source(self.encoder(x, entered.rows, entered.mask), entered.rows)

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
        if not isinstance(source, Source):
            source = self.encode(source, mask, rows=rows)
        entered = enter(target, target_mask, target_rows, cache)
        _check_rows(entered.rows, source)
        _check_length(entered.rows, self.target)
        x = self.target(entered.tokens, entered.rows)
        return self._output(self.decoder(x, entered.rows, entered.mask, source, cache), entered, cache, source, scored)


def _check_rows(rows: Rows, source: Source | None) -> None:
    """Each row has its own of the source, or shares it with as many others as are said."""
    if source is not None and rows.batch != source.rows.batch * source.copies:
        raise ValueError(f"{source.rows.batch * source.copies} source rows but {rows.batch} target rows")


def _check_length(rows: Rows, embedding: Embedding) -> None:
    """Learned positions end somewhere; formulas do not."""
    if isinstance(embedding.position, Learned) and rows.end > embedding.position.length:
        learnt = embedding.position.length
        raise ValueError(
            f"a row of {rows.end} tokens is longer than the {learnt} positions that this network has learnt"
        )


def empty(design: config.Network) -> AnyNetwork:
    """The network that a config describes, on the meta device: all its parts and shapes, and no memory."""
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream  # which builds on this file

    with torch.device("meta"):
        match design:
            case config.EncoderOnly():
                return EncoderOnly(design)
            case config.DecoderOnly():
                return DecoderOnly(design)
            case config.EncoderDecoder():
                return EncoderDecoder(design)
            case config.TwoStream():
                return TwoStream(design)
            case config.DualEncoder():
                return DualEncoder(design)


def build(
    design: config.Network, *, seed: int = 0, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> AnyNetwork:
    """The network that a config describes, its parameters drawn as the config's scheme says, from this seed."""
    network = empty(design).to_empty(device=device).to(dtype)
    initialize(network, design, seed)
    return network
