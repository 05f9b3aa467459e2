"""How gradients become changes: AdamW and Adafactor as torch has them, and Muon, put to work on groups of parameters.

A parameter's group says three things: which rule changes it, how fast (layer-wise rates), and whether it decays towards
zero (matrices and tables do; norms and biases, which are vectors, do not).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoint.files import CheckpointError
from regard.training.optim import muon
from regard.training.recipe.base import ByKind, Part
from regard.transformer.embedding import Tokens

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class AdamW(Part):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019). With decay 0 it is Adam."""

    kind: Literal["adamw"] = "adamw"
    rate: Rate = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """How much of the old is kept in the mean of gradients and of their squares."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-9
    decay: Decay = 0.0


class Adafactor(Part):
    """Adam whose second moments are kept by rows and columns: hardly any memory (Shazeer and Stern 2018)."""

    kind: Literal["adafactor"] = "adafactor"
    rate: Rate = 1e-2
    decay: Decay = 0.0


class Muon(Part):
    """Momentum made orthogonal, for the matrices inside the blocks (Jordan 2024); AdamW for everything else."""

    kind: Literal["muon"] = "muon"
    rate: Rate = 0.02
    """The rate of the matrices."""
    momentum: Beta = 0.95
    decay: Decay = 0.0
    rest: AdamW = AdamW(rate=1e-3)
    """For embeddings, heads, norms and biases."""


Optimizer = Annotated[AdamW | Adafactor | Muon, Field(discriminator="kind"), ByKind]


@dataclass(frozen=True)
class Group:
    """Parameters that are treated alike."""

    names: list[str]
    rule: AdamW | Adafactor | Muon
    decays: bool
    speed: float
    """What their rate is multiplied by."""


REMEMBERED: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.Adafactor: ("step", "row_var", "col_var", "variance"),
    muon.Muon: ("momentum_buffer",),
}
"""What each optimiser keeps for a parameter."""


class Optimizers:
    """The optimisers of all parameters that are trained, used as one."""

    def __init__(
        self,
        network: nn.Module,
        design: AdamW | Adafactor | Muon,
        layer_decay: float = 1.0,
        products: torch.dtype = torch.float32,
    ) -> None:
        self.parameters = {name: value for name, value in network.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise ValueError("nothing is left to train: `freeze` names all parts of the network")
        by_rule = _by_rule(network, design, layer_decay)
        self._parts = [_make(rule, found, self.parameters, products) for rule, found in by_rule]

    def step(self, factor: float) -> None:
        """Change the parameters by their gradients; `factor` is the schedule's."""
        for optimizer in self._parts:
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * factor
            optimizer.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """The gradients that are there."""
        return [value.grad for value in self.parameters.values() if value.grad is not None]

    def state(self) -> dict[str, Tensor]:
        """All that the optimisers remember, by the parameter's name and what it is."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            for optimizer in self._parts:
                for key, value in optimizer.state.get(parameter, {}).items():
                    found[f"{name}:{key}"] = torch.as_tensor(value)
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Remember what `state` gave."""
        owner = {
            parameter: each for each in self._parts for group in each.param_groups for parameter in group["params"]
        }
        for address, value in state.items():
            name, _, key = address.rpartition(":")
            parameter = self.parameters.get(name)
            if parameter is None:
                continue  # it is frozen by now
            optimizer = owner[parameter]
            if key not in REMEMBERED[type(optimizer)]:
                raise CheckpointError(
                    f"the state is of another optimizer: it has {key} for {name}. Give training.optimizer as it was"
                )
            # Adafactor counts its steps on the CPU, AdamW where it computes.
            apart = key == "step" and not optimizer.defaults.get("fused")
            optimizer.state[parameter][key] = value.to("cpu" if apart else parameter.device, copy=True)


def freeze(network: nn.Module, parts: Sequence[str]) -> None:
    """Train these parts no more. A part is named by its address: `source`, `encoder.blocks.0`."""
    for part in parts:
        found = [value for name, value in network.named_parameters() if name == part or name.startswith(f"{part}.")]
        if not found:
            known = ", ".join(name for name, _ in network.named_children())
            raise ValueError(f"training.freeze: the network has no part {part!r}; its parts are {known}, and theirs")
        for value in found:
            value.requires_grad_(False)


def groups(network: nn.Module, design: AdamW | Adafactor | Muon, layer_decay: float = 1.0) -> list[Group]:
    """Which parameters are treated alike."""
    tables = {id(module.weight) for module in network.modules() if isinstance(module, Tokens)}
    found: dict[tuple[bool, bool, float], list[str]] = {}
    for name, value in network.named_parameters():
        if value.requires_grad:
            inside = isinstance(design, Muon) and ".blocks." in name and value.ndim == 2 and id(value) not in tables
            key = (inside, value.ndim > 1, layer_decay ** _height(name, network) if layer_decay != 1 else 1.0)
            found.setdefault(key, []).append(name)
    rest = design.rest if isinstance(design, Muon) else design
    return [Group(names, design if inside else rest, decays, speed) for (inside, decays, speed), names in found.items()]


def _height(name: str, network: nn.Module) -> int:
    """How many layers lie between a parameter and the top of its stack: 0 for the head, most for the embeddings."""
    depths: dict[str, int] = {}
    for other, _ in network.named_parameters():
        if ".blocks." in other:
            stack, number = _block(other)
            depths[stack] = max(depths.get(stack, 0), number + 1)
    if name.startswith("head.") or "final_norm" in name:
        return 0
    if ".blocks." not in name:
        return max(depths.values(), default=0) + 1
    stack, number = _block(name)
    return depths[stack] - number


def _block(name: str) -> tuple[str, int]:
    stack, _, inside = name.partition(".blocks.")
    return stack, int(inside.partition(".")[0])


def _by_rule(
    network: nn.Module, design: AdamW | Adafactor | Muon, layer_decay: float
) -> Iterator[tuple[AdamW | Adafactor | Muon, list[Group]]]:
    found = groups(network, design, layer_decay)
    for rule in (design, design.rest) if isinstance(design, Muon) else (design,):
        chosen = [group for group in found if group.rule is rule]
        if chosen:
            yield rule, chosen


def _make(
    rule: AdamW | Adafactor | Muon,
    found: Sequence[Group],
    parameters: Mapping[str, nn.Parameter],
    products: torch.dtype,
) -> torch.optim.Optimizer:
    listed: list[dict[str, Any]] = [
        {
            "params": [parameters[name] for name in group.names],
            "weight_decay": rule.decay if group.decays else 0.0,
            "full_rate": rule.rate * group.speed,
        }
        for group in found
    ]
    match rule:
        case AdamW(rate=rate, betas=betas, epsilon=epsilon):
            return torch.optim.AdamW(listed, lr=rate, betas=betas, eps=epsilon, fused=True)
        case Adafactor(rate=rate):
            return torch.optim.Adafactor(listed, lr=rate)
        case Muon(rate=rate, momentum=momentum):
            return muon.Muon(listed, rate, momentum, products)
