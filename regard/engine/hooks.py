"""Detects forward hooks on submodules that a fused native call would skip."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle


class HookDetector:
    """True while one of the given modules has a forward hook or forward pre-hook, or while there is a global one.

    The check runs at every token, and there may be hundreds of modules. torch numbers hooks as they are registered,
    anywhere in the process, so the modules are searched only if hooks were registered since the last search without
    result.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.hook_dicts = [hooks for child in modules for hooks in (child._forward_hooks, child._forward_pre_hooks)]
        self.no_hooks_before_id = -1

    def __bool__(self) -> bool:
        """Return whether there are hooks."""
        if module._global_forward_hooks or module._global_forward_pre_hooks:
            return True
        next_id = RemovableHandle.next_id
        if next_id == self.no_hooks_before_id:
            return False
        if any(self.hook_dicts):
            return True
        self.no_hooks_before_id = next_id
        return False
