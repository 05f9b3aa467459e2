"""Capture activations of a forward pass by address.

    with capture(network, "decoder.blocks.3.attention.weights") as activations:
        network(tokens)
    activations["decoder.blocks.3.attention.weights"][0]      # heads × queries × keys of the first sequence

An address is the path of a module and a site in it. Attention has the sites `weights`, `query`, `key`, `value` and
`output` (`attention_sites.py`); any other module can offer sites of its own, as a `CaptureSource`. `*` matches one part
of an address: `decoder.blocks.*.cross_attention.weights`. A path without a site is the address of the module's first
site: in an attention, the weights.

The forward pass is not changed: it uses the kernel that it would have used. Attention weights are computed separately,
by the definition, and only for the attentions that are captured.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from regard.transformer.suggestion import did_you_mean

Activations = dict[str, list[Tensor]]
"""For each address one tensor per sequence and call, in order."""


@runtime_checkable
class CaptureSource(Protocol):
    """A module whose activations can be captured."""

    capture_sites: Sequence[str]
    """The names of its sites, as a class attribute. The first is the default."""

    def capture_hooks(self, activations: Mapping[str, list[Tensor]]) -> Iterable[RemovableHandle]:
        """Register forward hooks that append to the lists of these sites, one detached tensor per sequence."""


def capture_sites(network: nn.Module) -> dict[str, Sequence[str]]:
    """The paths of all modules that can be captured, from the first to the last, with their sites."""
    # Attributes of the class are faster to look up than those of a module: `capture` runs at every decode step.
    sites = {path: getattr(type(module), "capture_sites", ()) for path, module in network.named_modules()}
    return {path: names for path, names in sites.items() if names}


def attention_addresses(network: nn.Module) -> list[str]:
    """The addresses of all attentions of a network, from the first block to the last."""
    return [path for path, sites in capture_sites(network).items() if sites[0] == "weights"]


def capture_addresses(network: nn.Module) -> list[str]:
    """All addresses that can be captured, from the first module to the last."""
    return [f"{path}.{site}" for path, sites in capture_sites(network).items() for site in sites]


@contextmanager
def capture(network: Any, *addresses: str) -> Iterator[Activations]:
    """Collect the activations at these addresses while the `with` block runs.

    Without an address, the first site of every module that has sites is collected: the weights of all attentions. Each
    address maps to one tensor per sequence and call, in order; tensors are detached.
    """
    resolved = _resolve(network, addresses)
    collected: dict[str, Activations] = {}
    for path, site in resolved.values():
        collected.setdefault(path, {}).setdefault(site, [])
    handles: list[RemovableHandle] = []
    try:
        for path, activations in collected.items():
            handles += network.get_submodule(path).capture_hooks(activations)
        yield {address: collected[path][site] for address, (path, site) in resolved.items()}
    finally:
        for handle in handles:
            handle.remove()


def _resolve(network: nn.Module, patterns: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Expand addresses with `*`, and find the module and the site of each."""
    sites = capture_sites(network)
    defaults = {path: (path, names[0]) for path, names in sites.items()}
    full = {f"{path}.{site}": (path, site) for path, names in sites.items() for site in names}
    resolved: dict[str, tuple[str, str]] = {} if patterns else defaults
    for pattern in patterns:
        expression = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
        matches = {name: value for name, value in (defaults | full).items() if expression.fullmatch(name)}
        if not matches:
            hint = did_you_mean(pattern, [*defaults, *full])
            raise ValueError(f"there is nothing to capture at {pattern!r}{hint}; this network has {_describe(sites)}")
        resolved |= matches
    return resolved


def _describe(sites: Mapping[str, Sequence[str]]) -> str:
    """List the modules by the sites that they have."""
    paths: dict[tuple[str, ...], list[str]] = {}
    for path, names in sites.items():
        paths.setdefault(tuple(names), []).append(path)
    groups = [f"{', '.join(group)}, each with the sites {', '.join(names)}" for names, group in paths.items()]
    return "; ".join(groups) or "no addresses"
