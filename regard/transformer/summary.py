"""A network as a tree of modules, with shapes and parameter counts; works without allocating the network."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.transformer import config
from regard.transformer.network import build_on_meta


@dataclass(frozen=True)
class ModuleNode:
    """One module of a network."""

    name: str
    """Its name in its parent; identical consecutive blocks are merged to one node, such as `0…11`."""
    type_name: str
    """Name of its class."""
    num_parameters: int
    """Number of trainable parameters, children included; tied parameters count where they occur first."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes of its own parameters, without those of its children."""
    children: tuple[ModuleNode, ...]
    """Its child modules that have parameters."""
    tied: bool = False
    """Whether all its parameters are tied to those of an earlier module."""


def count_parameters(design: config.Network) -> int:
    """Count the trainable parameters of the network of a config, without allocating it."""
    return sum(parameter.numel() for parameter in build_on_meta(design).parameters() if parameter.requires_grad)


def module_tree(network: nn.Module | config.Network) -> ModuleNode:
    """Return the module tree of a network, or of the network of a config."""
    return _node("", network if isinstance(network, nn.Module) else build_on_meta(network), set())


def render_tree(node: ModuleNode) -> str:
    """Format the tree as text."""
    return "\n".join(_lines(node, "", ""))


def _node(name: str, module: nn.Module, counted: set[int]) -> ModuleNode:
    parameters = [(key, value) for key, value in module.named_parameters(recurse=False)]
    tied = bool(parameters) and all(id(value) in counted for _, value in parameters)
    new_parameters = sum(value.numel() for _, value in parameters if id(value) not in counted and value.requires_grad)
    counted.update(id(value) for _, value in parameters)
    children = [
        _node(key, child, counted)
        for key, child in module.named_children()
        if next(child.parameters(), None) is not None
    ]
    shapes = tuple((key, tuple(value.shape)) for key, value in parameters)
    total = new_parameters + sum(child.num_parameters for child in children)
    return ModuleNode(name, type(module).__name__, total, shapes, tuple(_merge_repeated(children)), tied)


def _merge_repeated(nodes: list[ModuleNode]) -> list[ModuleNode]:
    """Merge consecutive numbered nodes that differ only in their number."""
    merged: list[ModuleNode] = []
    for node in nodes:
        if merged and node.name.isdigit() and _same(merged[-1], node):
            first = merged[-1].name.partition("…")[0]
            merged[-1] = ModuleNode(
                f"{first}…{node.name}",
                node.type_name,
                merged[-1].num_parameters + node.num_parameters,
                node.shapes,
                node.children,
            )
        else:
            merged.append(node)
    return merged


def _same(a: ModuleNode, b: ModuleNode) -> bool:
    return (a.type_name, a.shapes, a.children) == (b.type_name, b.shapes, b.children)


def _lines(node: ModuleNode, prefix: str, child_prefix: str) -> list[str]:
    shapes = " ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in node.shapes)
    title = f"{node.name} {node.type_name}".strip()
    count = f"{node.num_parameters:,}" if node.num_parameters or not node.tied else "tied"
    lines = [f"{prefix}{title}  {count}" + (f"  {shapes}" if shapes else "")]
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        lines += _lines(child, child_prefix + ("└─ " if last else "├─ "), child_prefix + ("   " if last else "│  "))
    return lines
