"""Parameter initialisation by the published schemes.

In all of them the weights of norms are initialised to one and biases to zero. The schemes differ in the matrices.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn

from regard.transformer import config
from regard.transformer.attention import MultiHeadAttention
from regard.transformer.embedding import Tokens
from regard.transformer.normalization import LayerNorm, RMSNorm
from regard.transformer.position import Learned, RelativeBuckets


def initialize(network: nn.Module, design: config.Network, seed: int, only: Collection[str] | None = None) -> None:
    """Initialise the parameters of a network (or `only` these); the same seed gives the same values."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(design, config.DualEncoder):
        towers: dict[str, config.SingleNetwork] = {"text.": design.text, "vision.": design.vision}
        if only is None or "scale" in only:
            nn.init.constant_(network.get_parameter("scale"), design.scale)
    else:
        towers = {"": design}
    for prefix, tower in towers.items():
        _initialize_network(
            network,
            tower,
            generator,
            [entry for entry in _parameters_with_owners(network) if entry[0].startswith(prefix)],
            only,
        )


def _initialize_network(
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
            constant = _constant_value(owner, name)
            if constant is not None:
                parameter.fill_(constant)
                continue
            match scheme:
                case config.Normal(deviation=std):
                    _normal(parameter, std, generator)
                case config.ScaledNormal(deviation=std):
                    divisor = math.sqrt(2 * _layers(design)) if _writes_residual(name) else 1
                    _normal(parameter, std / divisor, generator)
                case config.FanIn(factor=factor):
                    _normal(parameter, factor * _fan_in(network, name, parameter, design), generator)
                case config.Glorot():
                    _glorot(parameter, owner, generator)
                case config.ByWidth(factor=factor):
                    _normal(parameter, factor * _by_width(name, owner, design, scheme.deviation), generator)


def _parameters_with_owners(network: nn.Module) -> list[tuple[str, nn.Parameter, nn.Module]]:
    """Return the name, the parameter and its module for every parameter; tied parameters only once."""
    return [(name, value, network.get_submodule(name.rpartition(".")[0])) for name, value in network.named_parameters()]


def _constant_value(owner: nn.Module, name: str) -> float | None:
    """Return 1 for the weights of norms, 0 for biases, None for parameters that are initialised at random."""
    if isinstance(owner, LayerNorm | RMSNorm) and name.endswith("weight"):
        return 1.0
    return 0.0 if name.endswith("bias") else None


def _writes_residual(name: str) -> bool:
    """Whether the output of this matrix is added to the residual stream."""
    return name.endswith(("attention.output.weight", "feedforward.down.weight"))


def _layers(design: config.SingleNetwork) -> int:
    return (design.encoder if isinstance(design, config.EncoderOnly | config.TwoStream) else design.decoder).layers


def _normal(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    # Sampled on the CPU in float32, so that the values do not depend on device and dtype.
    parameter.copy_(torch.empty(parameter.shape).normal_(0, std, generator=generator))


def _glorot(parameter: Tensor, owner: nn.Module, generator: torch.Generator) -> None:
    """Initialise matrices uniformly in ±√(6/(in + out)), and embeddings with std 1/√dim, as in tensor2tensor."""
    if isinstance(owner, Tokens | Learned | RelativeBuckets):
        _normal(parameter, parameter.shape[1] ** -0.5, generator)
        return
    bound = math.sqrt(6 / sum(parameter.shape))
    parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))


def _fan_in(network: nn.Module, name: str, parameter: Tensor, design: config.SingleNetwork) -> float:
    """Return the standard deviation in T5: as in Mesh TensorFlow, with the attention scale folded into the query."""
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


def _by_width(name: str, owner: nn.Module, design: config.SingleNetwork, std: float) -> float:
    """Return the standard deviation in CLIP, as in the transformers library."""
    if isinstance(owner, Tokens | Learned) or name.endswith("embedding.tokens.project.weight"):
        return std
    width = float(design.model_dim**-0.5)
    if name.endswith("feedforward.up.weight"):
        return float(width * 2**-0.5)
    if ".attention.project." in name or name.endswith("feedforward.down.weight"):
        return float(width * (2 * _layers(design)) ** -0.5)
    return width
