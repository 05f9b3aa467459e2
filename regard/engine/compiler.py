"""Compiles a network for CPU inference: replaces its modules by faster ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.engine.decode_step import with_decode_step
from regard.engine.linear import Precision, make_fused_linear
from regard.engine.modules_torch import CrossProjection, SelfProjection, make_replacement
from regard.engine.native_attention import NativeAttention, is_supported
from regard.engine.native_block import try_native_block
from regard.engine.native_embedding import try_native_embedding
from regard.engine.native_stack import try_native_stack
from regard.native.library import available
from regard.native.memory import retain_freed_memory
from regard.transformer.attention import MultiHeadAttention, Projection
from regard.transformer.block import Block
from regard.transformer.embedding import Embedding
from regard.transformer.feedforward import Dense, Gated
from regard.transformer.head import LanguageModel
from regard.transformer.stack import Stack

NetworkT = TypeVar("NetworkT", bound=nn.Module)


def compile(
    network: NetworkT,
    precision: Precision = Precision.FLOAT32,
    on_replaced: Callable[[Tensor], object] = lambda _: None,
) -> NetworkT:
    """Return a copy of the network with the same interface that computes the same, faster; for inference on a CPU.

        compiled = compile(network, Precision.INT8)

    The original network is not changed. Weights that are not replaced are shared with it; the others are freed once the
    original network is deleted. `on_replaced` is called with each weight of a module as soon as the module is replaced:
    the compiled network does not read these weights, except for embedding tables and norms, which the replacement may
    share. After this call the process retains some of the memory that it frees (`native/memory.py`).
    """
    parameter = next(network.parameters())
    if parameter.device.type != "cpu":
        raise ValueError(
            f"compile needs a network on the CPU, this one is on {parameter.device}: "
            "use it uncompiled, or move it to the CPU"
        )
    if any(weight.dtype not in (torch.float32, torch.int8) for weight in network.parameters()):
        raise ValueError(f"compile needs float32 weights, found {parameter.dtype}: load the network with dtype=float32")
    retain_freed_memory()
    copied = _copy_sharing_weights(network).eval()
    _replace_modules(copied, precision, on_replaced)
    compiled: NetworkT = with_decode_step(copied)  # type: ignore[assignment] # a subclass of the network's class
    return compiled


def quantizable_weights(network: nn.Module) -> set[str]:
    """Return the names of the weights that are quantized at INT8: attention, feed-forward, and output embedding."""
    weight_ids: set[int] = set()
    for module in network.modules():
        match module:
            case Projection():
                weight_ids |= {id(layer.weight) for layer in (module.query, module.key, module.value)}
            case MultiHeadAttention() | LanguageModel():
                weight_ids.add(id(module.output.weight))
            case Dense() | Gated():
                weight_ids |= {id(layer.weight) for layer in module.children() if isinstance(layer, nn.Linear)}
    names = network.named_parameters(remove_duplicate=False)
    return {name for name, weight in names if id(weight) in weight_ids}


def _copy_sharing_weights(network: NetworkT) -> NetworkT:
    """Return a copy that shares the memory of all parameters and buffers; its parameters need no gradient."""
    shared: dict[int, object] = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in network.parameters()
    }
    shared.update((id(buffer), buffer) for buffer in network.buffers())
    return copy.deepcopy(network, shared)


def _replace_modules(module: nn.Module, precision: Precision, on_replaced: Callable[[Tensor], object]) -> None:
    """Replace submodules by faster ones. Packing a weight is single-threaded, so several are packed in parallel."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        pending = [(parent, name, pool.submit(make)) for parent, name, make in _replacements(module, precision)]
        for parent, name, future in pending:
            if (replacement := future.result()) is not None:
                for weight in parent.get_submodule(name).parameters():
                    on_replaced(weight)
                parent.register_module(name, replacement)
    if available():
        _replace_blocks(module, _kv_dtype(precision))


def _kv_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of keys and values in native attention."""
    return torch.bfloat16 if precision is Precision.INT8 and available() else torch.float32


def _replace_blocks(module: nn.Module, kv_dtype: torch.dtype) -> None:
    """Replace attention layers, blocks, stacks and embeddings whose submodules are already replaced."""
    for name, child in module.named_children():
        if isinstance(child, Block):
            _replace_attentions(child, kv_dtype)
            if (block := try_native_block(child)) is not None:
                module.register_module(name, block)
            continue
        _replace_blocks(child, kv_dtype)
        if type(child) is Embedding and (embedding := try_native_embedding(child)) is not None:
            module.register_module(name, embedding)
        if type(child) is Stack and (stack := try_native_stack(child)) is not None:
            module.register_module(name, stack)


def _replace_attentions(block: Block, kv_dtype: torch.dtype) -> None:
    for name, attention in (("attention", block.attention), ("cross_attention", block.cross_attention)):
        if isinstance(attention, MultiHeadAttention) and is_supported(attention):
            block.register_module(name, NativeAttention(attention, kv_dtype))


Replacement = tuple[nn.Module, str, Callable[[], nn.Module | None]]
"""The parent module, the name of the child, and a function that returns the replacement, or None if there is none."""


def _replacements(module: nn.Module, precision: Precision) -> Iterator[Replacement]:
    for name, child in module.named_children():
        if isinstance(child, Block):
            yield from _projection_replacements(child, precision)
        yield module, name, partial(make_replacement, child, precision)
        yield from _replacements(child, precision)


def _projection_replacements(block: Block, precision: Precision) -> Iterator[Replacement]:
    """Fuse the projections of attention layers.

    Self-attention computes query, key and value from the same hidden states; other kinds of attention do not.
    """
    projection = SelfProjection if type(block.attention) is MultiHeadAttention else CrossProjection
    yield block.attention, "project", partial(projection, block.attention.project, precision)
    yield block.attention, "output", partial(make_fused_linear, [block.attention.output], precision)
    if block.cross_attention is not None:
        kv_dtype = _kv_dtype(precision) if is_supported(block.cross_attention) else torch.float32
        project = block.cross_attention.project
        yield block.cross_attention, "project", partial(CrossProjection, project, precision, kv_dtype)
        yield block.cross_attention, "output", partial(make_fused_linear, [block.cross_attention.output], precision)
