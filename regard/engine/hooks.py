"""Whether somebody listens to a part that a compiled call leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle


class Listeners:
    """True while one of these parts has a forward hook.

    It is asked at every token. Hooks are numbered as they are registered, anywhere in the process: the parts, which may
    be hundreds, are looked at only if there are new ones since nobody listened.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self.hooks = [hooks for part in parts for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        self.none_before = -1

    def __bool__(self) -> bool:
        """Look for hooks: of these parts, or of all."""
        if module._global_forward_hooks or module._global_forward_pre_hooks:
            return True
        newest = RemovableHandle.next_id
        if newest == self.none_before:
            return False
        if any(self.hooks):
            return True
        self.none_before = newest
        return False
