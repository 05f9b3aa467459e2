"""How untrained parameters start: one function for each published scheme.

Norms start at one and biases at zero in all of them; the schemes differ in the matrices.
"""

import math
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention import MultiHeadAttention
from regard.transformer.embedding import Tokens
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.position import Learned, RelativeBuckets

Draw = Callable[[Tensor, torch.Generator], None]


def initialize(network: nn.Module, design: config.Network, seed: int, only: Collection[str] | None = None) -> None:
    """Give the parameters of a network (or `only` these) their first values, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(design, config.DualEncoder):
        towers: dict[str, config.SingleNetwork] = {"text.": design.text, "vision.": design.vision}
        if only is None or "scale" in only:
            nn.init.constant_(network.get_parameter("scale"), design.scale)
    else:
        towers = {"": design}
    for prefix, tower in towers.items():
        _draw(network, tower, generator, [row for row in _once(network) if row[0].startswith(prefix)], only)


def _draw(
    network: nn.Module,
    design: config.SingleNetwork,
    generator: torch.Generator,
    parameters: list[tuple[str, nn.Parameter, nn.Module]],
    only: Collection[str] | None,
) -> None:
    scheme = design.initialization
    with torch.no_grad():
        for name, parameter, owner in parameters:
            if only is not None and name not in only:
                continue
            deviation = _plain(owner, name)
            if deviation is not None:
                parameter.fill_(deviation)
                continue
            match scheme:
                case config.Normal(deviation=deviation):
                    _normal(parameter, deviation, generator)
                case config.ScaledNormal(deviation=deviation):
                    _normal(parameter, deviation / (math.sqrt(2 * _layers(design)) if _adds(name) else 1), generator)
                case config.FanIn(factor=factor):
                    _normal(parameter, factor * _fan_in(network, name, parameter, design), generator)
                case config.Glorot():
                    _glorot(parameter, owner, generator)
                case config.ByWidth(factor=factor):
                    _normal(parameter, factor * _by_width(name, owner, design, scheme.deviation), generator)


def _once(network: nn.Module) -> list[tuple[str, nn.Parameter, nn.Module]]:
    """Every parameter with its name and the module it belongs to; a tied one only once."""
    return [(name, value, network.get_submodule(name.rpartition(".")[0])) for name, value in network.named_parameters()]


def _plain(owner: nn.Module, name: str) -> float | None:
    """One for the weights of norms, zero for biases; None for what is drawn at random."""
    if isinstance(owner, LayerNorm | RMSNorm) and name.endswith("weight"):
        return 1.0
    return 0.0 if name.endswith("bias") else None


def _adds(name: str) -> bool:
    """Whether what this matrix gives is added to the residual stream."""
    return name.endswith(("attention.output.weight", "feedforward.down.weight"))


def _layers(design: config.SingleNetwork) -> int:
    return (design.encoder if isinstance(design, config.EncoderOnly | config.TwoStream) else design.decoder).layers


def _normal(parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
    # Drawn on the CPU in float32, so that device and dtype do not change the numbers.
    parameter.copy_(torch.empty(parameter.shape).normal_(0, deviation, generator=generator))


def _glorot(parameter: Tensor, owner: nn.Module, generator: torch.Generator) -> None:
    """Matrices uniform in ±√(6/(in + out)); tables normal with deviation 1/√dim, as tensor2tensor had them."""
    if isinstance(owner, Tokens | Learned | RelativeBuckets):
        _normal(parameter, parameter.shape[1] ** -0.5, generator)
        return
    bound = math.sqrt(6 / sum(parameter.shape))
    parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))


def _fan_in(network: nn.Module, name: str, parameter: Tensor, design: config.SingleNetwork) -> float:
    """T5's deviations: those of Mesh TensorFlow, with the scale of the scores folded into the query."""
    module = network.get_submodule(name.rpartition(".")[0])
    if isinstance(module, Tokens):
        return 1.0
    if isinstance(module, RelativeBuckets):
        return design.model_dim**-0.5
    if name.endswith("project.query.weight"):
        attention = network.get_submodule(name.rpartition(".project")[0])
        assert isinstance(attention, MultiHeadAttention)
        return float((parameter.shape[1] * attention.project.head_dim) ** -0.5)
    return float(parameter.shape[-1] ** -0.5)


def _by_width(name: str, owner: nn.Module, design: config.SingleNetwork, deviation: float) -> float:
    """CLIP's deviations, as transformers has them."""
    if isinstance(owner, Tokens | Learned) or name.endswith("embedding.tokens.project.weight"):
        return deviation
    width = float(design.model_dim**-0.5)
    if name.endswith("feedforward.up.weight"):
        return float(width * 2**-0.5)
    if ".attention.project." in name or name.endswith("feedforward.down.weight"):
        return float(width * (2 * _layers(design)) ** -0.5)
    return width
