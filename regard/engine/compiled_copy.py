"""A compiled copy of a network, made when it is first used, and again after the weights have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.engine.compiler import compile
from regard.engine.linear import Precision

WeightVersions = tuple[tuple[int, int], ...]


class CompiledCopy:
    """Keeps a network and its compiled copy in step.

        copy = CompiledCopy(network, Precision.FLOAT32)
        copy.current()                      # compiles
        train(network)                      # any change in place, or other parameters
        copy.current()                      # compiles again

    A change through `parameter.data` in place is not noticed; torch does not record it.
    """

    def __init__(
        self, network: nn.Module, precision: Precision, release: Callable[[Tensor], object] = lambda _: None
    ) -> None:
        self.network, self.precision = network, precision
        self._release = release
        """Frees the memory of a weight that can be read from its file again."""
        self._loaded_versions = weight_versions(network)
        self._compiled: nn.Module | None = None
        self._compiled_versions: WeightVersions = ()
        self._lock = threading.Lock()

    def current(self) -> Any:
        """Return a network for inference: the compiled copy, or the network itself where a copy would differ.

        The network itself is used if it cannot be compiled (it is not on the CPU or not float32), and while one of its
        modules has a hook, which the copy would not run.
        """
        if not can_compile(self.network) or has_hooks(self.network):
            return self.network
        with self._lock:
            versions = weight_versions(self.network)
            if self._compiled is None or self._compiled_versions != versions:
                self._compiled = None  # free the old copy first
                unchanged = versions == self._loaded_versions  # changed weights are not in the file
                self._compiled = compile(self.network, self.precision, self._release if unchanged else lambda _: None)
                self._compiled_versions = versions
            return self._compiled


def weight_versions(network: nn.Module) -> WeightVersions:
    """Return the address and the version of each parameter and buffer: torch counts the changes in place."""
    weights = (*network.parameters(), *network.buffers())
    return tuple((weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights)


def can_compile(network: nn.Module) -> bool:
    """Return whether a network has float32 parameters on the CPU, and only such."""
    parameters = list(network.parameters())
    return bool(parameters) and all(each.device.type == "cpu" and each.dtype == torch.float32 for each in parameters)


def has_hooks(network: nn.Module) -> bool:
    """Return whether a module of the network has a forward hook."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
