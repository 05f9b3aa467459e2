"""An encoder-decoder that computes the logits of a shortlist only.

The shortlists are stored with the encoder output: `encode` looks up the shortlist of each source sentence, and the
shortlists follow the encoder output when sequences leave the batch, enter it, or are repeated for beams. So neither the
decoding algorithms nor the transformer modules depend on shortlists: the logits of a sequence outside its shortlist are
-inf.

When the batch changes, the rows of the output embedding that any of its shortlists contains are gathered. They are
packed for the native GEMM if the native library is available. torch uses them without packing: packing for oneDNN takes
longer than computing the logits of a few tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.checkpoint.quantized_tensor import MIN_ABSMAX, QMAX, QuantizedTensor
from regard.engine.linear import LinearWeights, OneDnnLinear, TorchLinear
from regard.engine.linear_int8 import FbgemmLinear, VnniLinear
from regard.engine.modules_native import PackedLinear
from regard.engine.modules_torch import InferenceLanguageModel
from regard.engine.shortlist import Shortlist
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.cache import Cache
from regard.transformer.head import LanguageModel
from regard.transformer.head_base import HeadOutput, HiddenStates, LogitsAt
from regard.transformer.network import EncoderDecoder, Output
from regard.transformer.packing import AnyMask, TargetIds, TargetMask, TokenIds, pack


class BatchShortlists:
    """The shortlists of the source sentences of a batch, and their union."""

    def __init__(self, lists: Sequence[Int[Tensor, " _"]], union: Int[Tensor, " union"] | None = None) -> None:
        self.lists = list(lists)
        self.union = torch.unique(torch.cat(self.lists)) if union is None else union
        self.linear: nn.Module | None = None
        """The output embedding of the union, gathered at the first use."""

    @cached_property
    def union_ids(self) -> Int[Tensor, " union"]:
        """The token ids of the union as int64, for indexing."""
        return self.union.long()

    @cached_property
    def excluded(self) -> Bool[Tensor, "sources union"]:
        """Which tokens of the union are not in the shortlist of each source sentence."""
        excluded = torch.ones(len(self.lists), len(self.union), dtype=torch.bool)
        for row, shortlist in zip(excluded, self.lists, strict=True):
            row[torch.searchsorted(self.union, shortlist)] = False
        return excluded

    def reorder(self, order: Sequence[int]) -> BatchShortlists:
        """Return the shortlists of these rows. The union is reused, unless less than half of it is still needed."""
        result = BatchShortlists([self.lists[row] for row in order], self.union)
        result.excluded = self.excluded[torch.tensor(order)]
        if 2 * int((~result.excluded).any(dim=0).sum()) < len(self.union):
            return BatchShortlists(result.lists)
        result.linear = self.linear
        return result

    def append_rows(self, other: BatchShortlists) -> BatchShortlists:
        """Return these shortlists followed by others."""
        return BatchShortlists([*self.lists, *other.lists])


@dataclass(frozen=True)
class ShortlistEncoderOutput(EncoderOutput):
    """An encoder output with the shortlists of its sentences."""

    shortlists: BatchShortlists = field(kw_only=True)
    """One for each source sentence."""

    def reorder(self, order: Sequence[int]) -> ShortlistEncoderOutput:
        """Return these rows, in this order."""
        result = super().reorder(order)
        return ShortlistEncoderOutput(
            result.hidden, result.layout, result.copies, shortlists=self.shortlists.reorder(order)
        )

    def append_rows(self, other: EncoderOutput) -> ShortlistEncoderOutput:
        """Return these rows followed by those of another encoder output."""
        assert isinstance(other, ShortlistEncoderOutput)
        result = super().append_rows(other)
        return ShortlistEncoderOutput(
            result.hidden, result.layout, result.copies, shortlists=self.shortlists.append_rows(other.shortlists)
        )


class CurrentSource(threading.local):
    """The encoder output of the current forward pass, one for each thread."""

    source: ShortlistEncoderOutput | None = None


class ShortlistHead(nn.Module):
    """Computes the logits of the shortlists; all other logits are -inf."""

    def __init__(self, original: LanguageModel | InferenceLanguageModel) -> None:
        super().__init__()
        self.transform = original.transform
        self.scale = original.scale if isinstance(original, LanguageModel) else 1.0
        self.output_embedding = _output_embedding(original)
        self.vocabulary = self.output_embedding.vocabulary_size
        self.current = CurrentSource()

    def forward(self, x: HiddenStates, layout: BatchLayout) -> HeadOutput:
        """Return the logits of each hidden state of a packed batch; the beams of a source follow each other."""
        assert self.current.source is not None
        shortlists, copies = self.current.source.shortlists, self.current.source.copies
        if shortlists.linear is None:
            shortlists.linear = self.output_embedding.select_rows(shortlists.union)
        if self.transform is not None:
            x = self.transform(x)
        if self.scale != 1:
            x = x * self.scale
        excluded = shortlists.excluded
        if len(x) != len(excluded):
            tokens_per_source = [sum(layout.lengths[row : row + copies]) for row in range(0, layout.batch_size, copies)]
            excluded = excluded.repeat_interleave(torch.tensor(tokens_per_source), dim=0)
        union_logits = shortlists.linear(x).masked_fill_(excluded, -torch.inf)
        logits = union_logits.new_full((len(x), self.vocabulary), -torch.inf)
        return HeadOutput(token_logits=logits.scatter_(1, shortlists.union_ids.expand(len(x), -1), union_logits))


class ShortlistEncoderDecoder(EncoderDecoder):
    """An encoder-decoder that generates only tokens of the shortlists. It shares all other modules with the network."""

    head: ShortlistHead

    def __init__(self, network: EncoderDecoder, shortlist: Shortlist, always_include: Collection[int] = ()) -> None:
        nn.Module.__init__(self)
        if not isinstance(network.head, LanguageModel | InferenceLanguageModel):
            raise ValueError("a shortlist needs a language-modelling head, and this network has none")
        self.config, self.training = network.config, network.training
        self.source, self.target = network.source, network.target
        self.encoder, self.decoder = network.encoder, network.decoder
        self.head = ShortlistHead(network.head)
        self.shortlist, self.always = shortlist, sorted(set(always_include))

    def encode(
        self, tokens: TokenIds, mask: AnyMask = None, *, layout: BatchLayout | None = None
    ) -> ShortlistEncoderOutput:
        """Encode the source and look up the shortlist of each sentence."""
        source, packed = super().encode(tokens, mask, layout=layout), pack(tokens, mask, layout)
        assert isinstance(packed.tokens, Tensor)
        sentences = torch.split(packed.tokens, list(packed.layout.lengths))
        lists = [self.shortlist.lookup(sentence.tolist(), self.always) for sentence in sentences]
        return ShortlistEncoderOutput(source.hidden, source.layout, source.copies, shortlists=BatchShortlists(lists))

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
        """Run the network on the source (or the output of `encode`) and the target prefix."""
        encoded = source if isinstance(source, EncoderOutput) else self.encode(source, mask, layout=layout)
        assert isinstance(encoded, ShortlistEncoderOutput)
        self.head.current.source = encoded
        try:
            return super().forward(
                encoded, target, target_mask=target_mask, cache=cache, target_layout=target_layout, logits_at=logits_at
            )
        finally:
            self.head.current.source = None


@dataclass(frozen=True)
class FloatOutputEmbedding:
    """A float32 output embedding, from which rows are selected."""

    weight: Float[Tensor, "vocabulary model"]
    bias: Float[Tensor, " vocabulary"] | None

    @property
    def vocabulary_size(self) -> int:
        """The size of the vocabulary."""
        return len(self.weight)

    def select_rows(self, token_ids: Int[Tensor, " chosen"]) -> nn.Module:
        """Return a linear layer for the logits of these tokens."""
        return TorchLinear(LinearWeights(self.weight[token_ids], _select_bias(self.bias, token_ids)))


@dataclass(frozen=True)
class Int8OutputEmbedding:
    """An int8 output embedding."""

    weight: QuantizedTensor
    bias: Float[Tensor, " vocabulary"] | None
    vnni: bool
    """Whether to use `VnniLinear`."""

    @property
    def vocabulary_size(self) -> int:
        """The size of the vocabulary."""
        return len(self.weight.qweight)

    def select_rows(self, token_ids: Int[Tensor, " chosen"]) -> nn.Module:
        """Return a linear layer for the logits of these tokens."""
        weight = QuantizedTensor(self.weight.qweight[token_ids], self.weight.scale[token_ids])
        weights = LinearWeights(weight, _select_bias(self.bias, token_ids))
        return VnniLinear(weights) if self.vnni else Int8Linear(weights)


@dataclass(frozen=True)
class PackedOutputEmbedding:
    """An output embedding that is packed in panels, float32 or int8."""

    linear: PackedLinear

    @property
    def vocabulary_size(self) -> int:
        """The size of the vocabulary."""
        return self.linear.out_features

    def select_rows(self, token_ids: Int[Tensor, " chosen"]) -> nn.Module:
        """Return a linear layer for the logits of these tokens."""
        return self.linear.select_outputs(token_ids)


class Int8Linear(nn.Module):
    """An int8 linear layer that multiplies in float32. Sums of integers up to 2²⁴ are exact in float32, so the result
    is that of `FbgemmLinear`. It needs no packing: slower in the long run, faster for a weight that is used a few
    times."""

    bias: Tensor | None

    def __init__(self, weights: LinearWeights) -> None:
        super().__init__()
        assert isinstance(weights.weight, QuantizedTensor)
        self.qweight = nn.Buffer(weights.weight.qweight.float(), persistent=False)
        self.scale = nn.Buffer(weights.weight.scale / QMAX, persistent=False)
        self.register_buffer("bias", weights.bias, persistent=False)

    def forward(self, x: Float[Tensor, "*any input"]) -> Float[Tensor, "*any output"]:
        """Return x·weightᵀ + bias."""
        absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min_(MIN_ABSMAX)
        output = nn.functional.linear((x / absmax).mul_(QMAX).round_(), self.qweight).mul_(self.scale)
        return output.mul_(absmax) if self.bias is None else torch.addcmul(self.bias, output, absmax)


def _select_bias(bias: Tensor | None, token_ids: Tensor) -> Tensor | None:
    return None if bias is None else bias[token_ids]


def _output_embedding(
    head: LanguageModel | InferenceLanguageModel,
) -> FloatOutputEmbedding | Int8OutputEmbedding | PackedOutputEmbedding:
    """Return the output embedding of a head in a form from which rows can be selected."""
    if isinstance(head, LanguageModel):
        return FloatOutputEmbedding(head.output.weight.detach(), None if head.bias is None else head.bias.detach())
    match head.linear:
        case PackedLinear() as linear:
            return PackedOutputEmbedding(linear)
        case VnniLinear() as linear:
            return Int8OutputEmbedding(QuantizedTensor(linear.qweight, linear.scale * QMAX), linear.bias, vnni=True)
        case FbgemmLinear() as linear:
            unpacked = torch.ops.quantized.linear_unpack(linear.packed_qweight)[0]
            scale = unpacked.q_per_channel_scales().float()
            return Int8OutputEmbedding(QuantizedTensor(unpacked.int_repr(), scale), linear.bias, vnni=False)
        case OneDnnLinear() as linear:
            return FloatOutputEmbedding(linear.weight.to_dense(), linear.bias)
        case TorchLinear() as linear:
            return FloatOutputEmbedding(linear.weight, linear.bias)
        case other:
            raise TypeError(f"cannot select output rows of {type(other).__name__}")
