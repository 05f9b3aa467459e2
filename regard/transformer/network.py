"""Complete networks: encoder-only, decoder-only and encoder-decoder.

The input is a padded batch with a mask, or a packed batch with its `BatchLayout`. Padding is removed before the first
layer and restored in the output, so no layer computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Union

import torch

from regard.transformer import config, head
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache, Memory
from regard.transformer.decoder_state import DecoderOnlyState, EncoderDecoderState
from regard.transformer.embedding import Embedding
from regard.transformer.head_base import LogitsAt
from regard.transformer.initialization import initialize
from regard.transformer.network_base import Network, Output
from regard.transformer.packing import AnyMask, TargetIds, TargetMask, TokenIds, check_tensor, pack, pack_images
from regard.transformer.patches import Images, MaskedImages, Patches
from regard.transformer.position import Learned
from regard.transformer.stack import Stack

if TYPE_CHECKING:
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream

    AnyNetwork = Union["EncoderOnly", "DecoderOnly", "EncoderDecoder", TwoStream, DualEncoder]  # noqa: UP007 - quotes


class EncoderOnly(Network):
    """Embedding, encoder and head: BERT, ViT."""

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
        layout: BatchLayout | None = None,
    ) -> Output:
        """Encode tokens or images. `mask` is a tensor that is True at real tokens, or a mask of `mask.py`."""
        patches = self.embedding.tokens
        if not isinstance(patches, Patches) and not isinstance(tokens, MaskedImages):
            check_tensor(tokens)
        if isinstance(patches, Patches):
            packed = pack_images(tokens, mask, layout, patches)
        elif isinstance(tokens, MaskedImages) or tokens.is_floating_point():
            raise ValueError("this network expects token ids, found images")
        else:
            packed = pack(tokens, mask, layout)
        _check_length(packed.layout, self.embedding)
        x = self.embedding(packed.tokens, packed.layout, packed.pack(segments))
        return self._output(self.encoder(x, packed.layout, packed.mask), packed)


class DecoderOnly(Network):
    """Embedding, decoder and head: GPT-2, Llama."""

    alignment_address: str | None = None
    """There is no source to align with."""

    def __init__(self, design: config.DecoderOnly) -> None:
        super().__init__()
        self.config = design
        self.embedding = Embedding(design.embedding, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.embedding.tokens) if design.head else None

    def new_cache(self) -> Cache | Memory:
        """Create an empty cache. Pass it to every decode step, together with the new tokens only."""
        return self.decoder.new_memory() or self.decoder.new_cache()

    @property
    def scores_in_one_pass(self) -> bool:
        """Whether one call gives the logits of decode steps: not with a segment memory, where a step is a segment."""
        return self.decoder.memory is None

    def new_decoder_state(self, sources: Sequence[Sequence[int]] | None = None) -> DecoderOnlyState:
        """Return a state without tokens; `sources` are ignored."""
        del sources
        return DecoderOnlyState(self)

    def forward(
        self,
        tokens: TokenIds,
        mask: AnyMask = None,
        cache: Cache | Memory | None = None,
        *,
        segments: TokenIds | None = None,
        layout: BatchLayout | None = None,
        source: EncoderOutput | None = None,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        """Decode the tokens, each attending to those before it; with a cache, also to those of earlier steps."""
        check_tensor(tokens)
        if not isinstance(cache, Cache):
            batch_size = layout.batch_size if layout else len(tokens)
            cache = self.decoder.init_memory(cache, batch_size, self.embedding.example_hidden(self.model_dim))
        packed = pack(tokens, mask, layout, cache)
        _check_length(packed.layout, self.embedding)
        _check_encoder_output(packed.layout, source)
        x = self.embedding(packed.tokens, packed.layout, packed.pack(segments))
        return self._output(
            self.decoder(x, packed.layout, packed.mask, source, cache), packed, cache, source, logits_at
        )


class EncoderDecoder(Network):
    """An encoder for the source, a decoder for the target: Vaswani et al. 2017, BART, T5, Marian."""

    scores_in_one_pass = True
    """One call gives the logits of decode steps."""

    def __init__(self, design: config.EncoderDecoder) -> None:
        super().__init__()
        self.config = design
        self.source = Embedding(design.source, design.model_dim)
        self.target = Embedding(design.target, design.model_dim, shared=self.source.tokens)
        self.encoder = Stack(design.encoder, design.model_dim)
        self.decoder = Stack(design.decoder, design.model_dim)
        self.head = head.build(design.head, design.model_dim, self.target.tokens) if design.head else None

    def new_cache(self) -> Cache:
        """Create an empty cache. Pass it to every decode step, together with the new target tokens only."""
        return self.decoder.new_cache()

    @property
    def alignment_address(self) -> str:
        """Address of the cross-attention of the penultimate block.

        Its weights align words best in networks of the usual depth (Garg et al. 2019).
        """
        return f"decoder.blocks.{max(0, len(self.decoder.blocks) - 2)}.cross_attention"

    def new_decoder_state(self, sources: Sequence[Sequence[int]] | None) -> EncoderDecoderState:
        """Encode the sources, and return a state without target tokens."""
        if sources is None:
            raise ValueError("this network has an encoder: pass the source tokens of each sequence")
        return EncoderDecoderState(self, sources)

    def encode(self, tokens: TokenIds, mask: AnyMask = None, *, layout: BatchLayout | None = None) -> EncoderOutput:
        """Encode the source, once for all decode steps."""
        packed = pack(tokens, mask, layout)
        _check_length(packed.layout, self.source)
        x = self.source(packed.tokens, packed.layout)
        return EncoderOutput(self.encoder(x, packed.layout, packed.mask), packed.layout)

    def forward(
        self,
        source: TokenIds | EncoderOutput,
        target: TargetIds,
        mask: AnyMask = None,
        target_mask: TargetMask = None,
        cache: Cache | None = None,
        *,
        layout: BatchLayout | None = None,
        target_layout: BatchLayout | None = None,
        logits_at: LogitsAt = LogitsAt.ALL,
    ) -> Output:
        """Decode the target. `source` are the source tokens, or the output of `encode`."""
        if not isinstance(source, EncoderOutput):
            source = self.encode(source, mask, layout=layout)
        packed = pack(target, target_mask, target_layout, cache)
        _check_encoder_output(packed.layout, source)
        _check_length(packed.layout, self.target)
        x = self.target(packed.tokens, packed.layout)
        return self._output(
            self.decoder(x, packed.layout, packed.mask, source, cache), packed, cache, source, logits_at
        )


def _check_encoder_output(layout: BatchLayout, source: EncoderOutput | None) -> None:
    """Check that the batch has `source.copies` target sequences for each source."""
    if source is not None and layout.batch_size != source.layout.batch_size * source.copies:
        raise ValueError(
            f"{source.layout.batch_size * source.copies} source sequences but {layout.batch_size} target sequences"
        )


def _check_length(layout: BatchLayout, embedding: Embedding) -> None:
    """Check that learned positions cover the batch. Computed positions (sinusoidal, rotary) have no limit."""
    if isinstance(embedding.position, Learned) and layout.end_position > embedding.position.length:
        num_positions = embedding.position.length
        raise ValueError(
            f"a sequence of {layout.end_position} tokens exceeds the {num_positions} learned positions of this network"
        )


def build_on_meta(design: config.Network) -> AnyNetwork:
    """Build the network of a config on the meta device: all modules and shapes, without allocating memory."""
    from regard.transformer.dual_encoder import DualEncoder
    from regard.transformer.two_stream import TwoStream  # imports this file

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
    """Build the network of a config, and initialise its parameters by the config's scheme and this seed."""
    network = build_on_meta(design).to_empty(device=device).to(dtype)
    initialize(network, design, seed)
    return network
