"""A network made fast for inference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.engine.decode_step import compiled_writer
from regard.engine.linear import Precision, matrix_of
from regard.engine.modules_torch import CrossProjection, SelfProjection, quicker
from regard.engine.native_attention import QuickAttention, fits
from regard.engine.native_block import compiled_block
from regard.engine.native_embedding import compiled_embedding
from regard.engine.native_stack import compiled_stack
from regard.native.library import available
from regard.native.memory import keep_freed
from regard.transformer.attention import MultiHeadAttention, Projection
from regard.transformer.block import Block
from regard.transformer.embedding import Embedding
from regard.transformer.feedforward import Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.stack import Stack

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


def prepare(
    network: AnyNetwork, precision: Precision = Precision.FP32, done: Callable[[Tensor], object] = lambda _: None
) -> AnyNetwork:
    """A copy of the network that is called in the same way and computes the same, faster; for inference on a CPU.

        quick = prepare(network, Precision.INT8)

    What is not replaced is shared with the network, which stays as it is. Let go of it and its weights are freed.
    `done` is told the weights of each part as soon as something stands in for it: they will hardly be read again, but
    for tables and norms, which it may be made of. From now on the process keeps some of the memory that it frees
    (`native/memory.py`).
    """
    parameter = next(network.parameters())
    if parameter.device.type != "cpu":
        raise ValueError(f"networks are prepared for a CPU, and this one is on {parameter.device}: use it as it is")
    if any(weight.dtype not in (torch.float32, torch.int8) for weight in network.parameters()):
        raise ValueError(f"networks are prepared from float32, found {parameter.dtype}: load it with dtype=float32")
    keep_freed()
    prepared = _sharing(network).eval()
    _replace(prepared, precision, done)
    quick: AnyNetwork = compiled_writer(prepared)  # type: ignore[assignment] # of the same kind
    return quick


def matrices(network: nn.Module) -> set[str]:
    """The names of the weights that are bytes at INT8: those of attention, feed-forward layers, and the vocabulary."""
    found: set[int] = set()
    for part in network.modules():
        match part:
            case Projection():
                found |= {id(layer.weight) for layer in (part.query, part.key, part.value)}
            case MultiHeadAttention() | LanguageModel():
                found.add(id(part.output.weight))
            case Dense() | Gated():
                found |= {id(layer.weight) for layer in part.children() if isinstance(layer, nn.Linear)}
    names = network.named_parameters(remove_duplicate=False)
    return {name for name, weight in names if id(weight) in found}


def _sharing(network: AnyNetwork) -> AnyNetwork:
    """A copy whose parameters are the same memory, and learn nothing."""
    shared: dict[int, object] = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in network.parameters()
    }
    shared.update((id(buffer), buffer) for buffer in network.buffers())
    return copy.deepcopy(network, shared)


def _replace(part: nn.Module, precision: Precision, done: Callable[[Tensor], object]) -> None:
    """Put quicker parts in their places; several are made at a time, for to lay out a matrix takes one core."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        found = [(owner, name, pool.submit(make)) for owner, name, make in _replacements(part, precision)]
        for owner, name, made in found:
            if (stands_in := made.result()) is not None:
                for weight in owner.get_submodule(name).parameters():
                    done(weight)
                owner.register_module(name, stands_in)
    if available():
        _replace_blocks(part, _numbers(precision))


def _numbers(precision: Precision) -> torch.dtype:
    """What keys and values are, where the compiled parts attend to them."""
    return torch.bfloat16 if precision is Precision.INT8 and available() else torch.float32


def _replace_blocks(part: nn.Module, numbers: torch.dtype) -> None:
    """Blocks whose parts are replaced, their attentions, stacks of such blocks, and embeddings."""
    for name, child in part.named_children():
        if isinstance(child, Block):
            _replace_attentions(child, numbers)
            if (whole := compiled_block(child)) is not None:
                part.register_module(name, whole)
            continue
        _replace_blocks(child, numbers)
        if type(child) is Embedding and (embedding := compiled_embedding(child)) is not None:
            part.register_module(name, embedding)
        if type(child) is Stack and (stack := compiled_stack(child)) is not None:
            part.register_module(name, stack)


def _replace_attentions(block: Block, numbers: torch.dtype) -> None:
    for name, attention in (("attention", block.attention), ("cross_attention", block.cross_attention)):
        if isinstance(attention, MultiHeadAttention) and fits(attention):
            block.register_module(name, QuickAttention(attention, numbers))


Replacement = tuple[nn.Module, str, Callable[[], nn.Module | None]]
"""Whose child is replaced, its name, and how to make what stands in for it, if there is something quicker."""


def _replacements(part: nn.Module, precision: Precision) -> Iterator[Replacement]:
    for name, child in part.named_children():
        if isinstance(child, Block):
            yield from _projections(child, precision)
        yield part, name, partial(quicker, child, precision)
        yield from _replacements(child, precision)


def _projections(block: Block, precision: Precision) -> Iterator[Replacement]:
    """Attention of a row to itself asks and answers with the same vectors; other kinds of attention do not."""
    own = SelfProjection if type(block.attention) is MultiHeadAttention else CrossProjection
    yield block.attention, "project", partial(own, block.attention.project, precision)
    yield block.attention, "output", partial(matrix_of, [block.attention.output], precision)
    if block.cross_attention is not None:
        numbers = _numbers(precision) if fits(block.cross_attention) else torch.float32
        project = block.cross_attention.project
        yield block.cross_attention, "project", partial(CrossProjection, project, precision, numbers)
        yield block.cross_attention, "output", partial(matrix_of, [block.cross_attention.output], precision)
