"""Optimizers: torch's AdamW and Adafactor, and Muon, on groups of parameters.

The group of a parameter determines its optimizer, its learning rate (layer-wise decay), and whether it has weight decay
(matrices and embedding tables have; norms and biases, which are vectors, do not).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.checkpoint.model_folder import CheckpointError
from regard.training.optim import muon
from regard.training.recipe.base import KindShorthand, Section
from regard.transformer.embedding import Tokens

LearningRate = Annotated[float, Field(gt=0)]
WeightDecay = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class AdamWConfig(Section):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019). With weight decay 0 it is Adam."""

    kind: Literal["adamw"] = "adamw"
    lr: LearningRate = 1e-3
    """Peak learning rate."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay rates of the moving averages of the gradient and of its square."""
    eps: Annotated[float, Field(gt=0)] = 1e-9
    """Added to the denominator of an update."""
    weight_decay: WeightDecay = 0.0
    """Decay of matrices and embedding tables per step, times the learning rate."""


class AdafactorConfig(Section):
    """Adam with second moments factored into rows and columns: very little memory (Shazeer and Stern 2018)."""

    kind: Literal["adafactor"] = "adafactor"
    lr: LearningRate = 1e-2
    """Peak learning rate."""
    weight_decay: WeightDecay = 0.0
    """Decay of matrices and embedding tables per step, times the learning rate."""


class MuonConfig(Section):
    """Orthogonalized momentum for the matrices in the blocks (Jordan 2024); AdamW for all other parameters."""

    kind: Literal["muon"] = "muon"
    lr: LearningRate = 0.02
    """Learning rate of the matrices."""
    momentum: Beta = 0.95
    """Decay rate of the moving average of the gradient."""
    weight_decay: WeightDecay = 0.0
    """Decay of matrices and embedding tables per step, times the learning rate."""
    adamw: AdamWConfig = AdamWConfig(lr=1e-3)
    """AdamW for embeddings, heads, norms and biases."""


OptimizerConfig = Annotated[AdamWConfig | AdafactorConfig | MuonConfig, Field(discriminator="kind"), KindShorthand]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with the same optimizer, weight decay and learning rate."""

    names: list[str]
    config: AdamWConfig | AdafactorConfig | MuonConfig
    has_weight_decay: bool
    lr_scale: float
    """Factor of their learning rate."""


STATE_KEYS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.Adafactor: ("step", "row_var", "col_var", "variance"),
    muon.Muon: ("momentum_buffer",),
}
"""The state tensors of each optimizer."""


class Optimizers:
    """The optimizers of all trainable parameters, used as one."""

    def __init__(
        self,
        network: nn.Module,
        config: AdamWConfig | AdafactorConfig | MuonConfig,
        layer_decay: float = 1.0,
        matmul_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.parameters = {name: value for name, value in network.named_parameters() if value.requires_grad}
        if not self.parameters:
            raise ValueError("no trainable parameters: training.freeze covers the whole network")
        self._optimizers = [
            _build_optimizer(optimizer_config, groups, self.parameters, matmul_dtype)
            for optimizer_config, groups in _groups_by_optimizer(network, config, layer_decay)
        ]

    def step(self, factor: float) -> None:
        """Update the parameters. `factor` is that of the learning-rate schedule."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor
            optimizer.step()

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def gradients(self) -> list[Tensor]:
        """Return the gradients that are not None."""
        return [value.grad for value in self.parameters.values() if value.grad is not None]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of all optimizers as `parameter:key`."""
        result: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            for optimizer in self._optimizers:
                for key, value in optimizer.state.get(parameter, {}).items():
                    result[f"{name}:{key}"] = torch.as_tensor(value)
        return result

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state_dict`."""
        optimizer_of = {
            parameter: optimizer
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for address, value in state.items():
            name, _, key = address.rpartition(":")
            parameter = self.parameters.get(name)
            if parameter is None:
                continue  # it is frozen now
            optimizer = optimizer_of[parameter]
            if key not in STATE_KEYS[type(optimizer)]:
                raise CheckpointError(
                    f"the checkpoint belongs to another optimizer (it has {key} for {name}): restore training.optimizer"
                )
            # Adafactor keeps its step count on the CPU, fused AdamW on the device.
            on_cpu = key == "step" and not optimizer.defaults.get("fused")
            optimizer.state[parameter][key] = value.to("cpu" if on_cpu else parameter.device, copy=True)


def freeze(network: nn.Module, modules: Sequence[str]) -> None:
    """Freeze the parameters of modules, which are named by address: `source`, `encoder.blocks.0`."""
    for address in modules:
        parameters = [
            value for name, value in network.named_parameters() if name == address or name.startswith(f"{address}.")
        ]
        if not parameters:
            children = ", ".join(name for name, _ in network.named_children())
            raise ValueError(f"training.freeze: the network has no module {address!r}; top-level modules: {children}")
        for value in parameters:
            value.requires_grad_(False)


def parameter_groups(
    network: nn.Module, config: AdamWConfig | AdafactorConfig | MuonConfig, layer_decay: float = 1.0
) -> list[ParameterGroup]:
    """Group the trainable parameters by optimizer, weight decay and learning rate."""
    tables = {id(module.weight) for module in network.modules() if isinstance(module, Tokens)}
    groups: dict[tuple[bool, bool, float], list[str]] = {}
    for name, value in network.named_parameters():
        if value.requires_grad:
            uses_muon = (
                isinstance(config, MuonConfig) and ".blocks." in name and value.ndim == 2 and id(value) not in tables
            )
            lr_scale = layer_decay ** _depth_from_top(name, network) if layer_decay != 1 else 1.0
            groups.setdefault((uses_muon, value.ndim > 1, lr_scale), []).append(name)
    other_config = config.adamw if isinstance(config, MuonConfig) else config
    return [
        ParameterGroup(names, config if uses_muon else other_config, has_weight_decay, lr_scale)
        for (uses_muon, has_weight_decay, lr_scale), names in groups.items()
    ]


def _depth_from_top(name: str, network: nn.Module) -> int:
    """Return the distance of a parameter from the top of its stack: 0 for the head, the maximum for the embeddings."""
    depths: dict[str, int] = {}
    for each, _ in network.named_parameters():
        if ".blocks." in each:
            stack, index = _stack_and_index(each)
            depths[stack] = max(depths.get(stack, 0), index + 1)
    if name.startswith("head.") or "final_norm" in name:
        return 0
    if ".blocks." not in name:
        return max(depths.values(), default=0) + 1
    stack, index = _stack_and_index(name)
    return depths[stack] - index


def _stack_and_index(name: str) -> tuple[str, int]:
    stack, _, rest = name.partition(".blocks.")
    return stack, int(rest.partition(".")[0])


def _groups_by_optimizer(
    network: nn.Module, config: AdamWConfig | AdafactorConfig | MuonConfig, layer_decay: float
) -> Iterator[tuple[AdamWConfig | AdafactorConfig | MuonConfig, list[ParameterGroup]]]:
    groups = parameter_groups(network, config, layer_decay)
    for each in (config, config.adamw) if isinstance(config, MuonConfig) else (config,):
        matching = [group for group in groups if group.config is each]
        if matching:
            yield each, matching


def _build_optimizer(
    config: AdamWConfig | AdafactorConfig | MuonConfig,
    groups: Sequence[ParameterGroup],
    parameters: Mapping[str, nn.Parameter],
    matmul_dtype: torch.dtype,
) -> torch.optim.Optimizer:
    param_groups: list[dict[str, Any]] = [
        {
            "params": [parameters[name] for name in group.names],
            "weight_decay": config.weight_decay if group.has_weight_decay else 0.0,
            "base_lr": config.lr * group.lr_scale,
        }
        for group in groups
    ]
    match config:
        case AdamWConfig(lr=lr, betas=betas, eps=eps):
            return torch.optim.AdamW(param_groups, lr=lr, betas=betas, eps=eps, fused=True)
        case AdafactorConfig(lr=lr):
            return torch.optim.Adafactor(param_groups, lr=lr)
        case MuonConfig(lr=lr, momentum=momentum):
            return muon.Muon(param_groups, lr, momentum, matmul_dtype)
