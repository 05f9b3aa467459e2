"""A reference implementation of the Transformer for one sequence: dense masks, no packing, no kernels, no cache.

It uses only the config and the parameters of a network. In training, dropout is a factor of 1 - probability.
"""

import math

import torch

from regard.transformer import config
from regard.transformer.config import Activation, Layout, NormOrder
from regard.transformer.mask import Band, Causal, Everything, Window


def may_attend(mask, query, key):
    """Whether the query at this position may attend to the key at that position."""
    match mask:
        case Everything():
            return True
        case Causal():
            return key <= query
        case Window(size=size):
            return abs(query - key) <= size
        case Band(width=width):
            return 0 <= query - key < width


def dense(mask, length):
    return torch.tensor([[may_attend(mask, query, key) for key in range(length)] for query in range(length)])


def activate(activation, x):
    match activation:
        case Activation.RELU:
            return torch.where(x > 0, x, 0)
        case Activation.GELU:
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2
        case Activation.GELU_TANH:
            return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case Activation.SILU:
            return x / (1 + torch.exp(-x))
        case Activation.TANH:
            return 1 - 2 / (torch.exp(2 * x) + 1)
        case Activation.QUICK_GELU:
            return x / (1 + torch.exp(-1.702 * x))


def sinusoid(layout, position, dim):
    """Section 3.5 of the 2017 paper, element by element."""
    even = [math.sin(position / 10000 ** (2 * i / dim)) for i in range((dim + 1) // 2)]
    odd = [math.cos(position / 10000 ** (2 * i / dim)) for i in range(dim // 2)]
    if layout is Layout.HALVES:
        return [*even, *odd]
    return [even[i // 2] if i % 2 == 0 else odd[i // 2] for i in range(dim)]


def rotate(x, base):
    """Rotary positions: each pair (xᵢ, xᵢ₊ₕ) a complex number, multiplied by e^(i · position · frequency)."""
    length, half = len(x), x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    point = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat([point.real, point.imag], dim=-1)


def normalized(design, module, x):
    if isinstance(design, config.LayerNorm):
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + design.epsilon).sqrt() * module.weight + module.bias
    return x / (x.square().mean(-1, keepdim=True) + design.epsilon).sqrt() * module.weight


def apply_linear(linear, x):
    x = x @ linear.weight.T
    return x if linear.bias is None else x + linear.bias


class ReferenceNetwork:
    """Computes the hidden states of one sequence."""

    def __init__(self, network, training=False):
        self.network, self.design, self.training = network, network.config, training

    def hidden(self, tokens, seen=None, segments=None):
        """Hidden states of an encoder-only or decoder-only network; `seen` is combined (&) with the stack's mask."""
        network, design = self.network, self.design
        side = "encoder" if isinstance(design, config.EncoderOnly) else "decoder"
        x = self.embedded(design.embedding, network.embedding, tokens, segments)
        return self.stacked(getattr(design, side), getattr(network, side), x, seen)

    def translated(self, source, target, seen=None, target_seen=None):
        """Hidden states of the decoder of an encoder-decoder network."""
        network, design = self.network, self.design
        x = self.embedded(design.source, network.source, source)
        encoded = self.stacked(design.encoder, network.encoder, x, seen)
        y = self.embedded(design.target, network.target, target)
        return self.stacked(design.decoder, network.decoder, y, target_seen, encoded)

    def dropped(self, x, rate):
        return x * (1 - rate) if self.training else x

    def embedded(self, design, module, tokens, segments=None):
        x = module.tokens.weight[tokens] * design.scale
        if design.segments:
            x = x + module.segments.weight[torch.zeros_like(tokens) if segments is None else segments]
        match design.position:
            case config.Sinusoidal(layout=layout):
                x = x + torch.tensor([sinusoid(layout, at, design.dim) for at in range(len(tokens))], dtype=x.dtype)
            case config.Learned(offset=offset):
                x = x + module.position.weight[offset : offset + len(tokens)]
        if design.norm is not None:
            x = normalized(design.norm, module.norm, x)
        x = self.dropped(x, design.dropout)
        return x if module.projection is None else apply_linear(module.projection, x)

    def stacked(self, design, module, x, seen=None, source=None):
        own = dense(design.mask, len(x)) if seen is None else dense(design.mask, len(x)) & seen
        position = self.positioned(design, module, len(x))
        for layer in range(design.layers):
            kind, block = design.blocks[layer % len(design.blocks)], module.blocks[layer]
            x = self.blocked(kind, block, x, own & dense(kind.mask, len(x)), source, *position)
        if design.final_norm is not None:
            x = normalized(design.final_norm, module.final_norm, x)
        return self.dropped(x, design.final_dropout)

    def blocked(self, design, block, x, seen, source=None, turn=None, bias=None):
        def own(x):
            return self.attended(design.attention, block.attention, x, x, seen, turn, bias)

        def across(x):
            return self.attended(design.cross_attention, block.cross_attention, x, source)

        def fed(x):
            return self.fed(design.feedforward, block.feedforward, x)

        x = self.connected(design, block.attention_residual, x, own, design.attention.output_dropout)
        if source is not None:
            rate = design.cross_attention.output_dropout
            x = self.connected(design, block.cross_attention_residual, x, across, rate)
        return self.connected(design, block.feedforward_residual, x, fed, design.feedforward.output_dropout)

    def connected(self, design, residual, x, sublayer, rate):
        match design.order:
            case NormOrder.POST:
                return normalized(design.norm, residual.norm, x + self.dropped(sublayer(x), rate))
            case NormOrder.PRE:
                return x + self.dropped(sublayer(normalized(design.norm, residual.norm, x)), rate)
            case NormOrder.BOTH:
                output = sublayer(normalized(design.norm, residual.norm, x))
                return x + self.dropped(normalized(design.norm, residual.output_norm, output), rate)

    def attended(self, design, module, x, y, seen=None, turn=None, bias=None):
        """Queries from x, keys and values from y."""
        weights = self.weights(design, module, x, y, seen, turn, bias)
        value = apply_linear(module.project.value, y).unflatten(-1, (-1, design.head_dim))
        group = design.heads // design.key_value_heads
        heads = [self.dropped(weights[h], design.dropout) @ value[:, h // group] for h in range(design.heads)]
        return apply_linear(module.output, torch.cat(heads, dim=-1))

    def weights(self, design, module, x, y, seen=None, turn=None, bias=None):
        """Attention weights of queries from x and keys from y: heads × query × key."""
        query = apply_linear(module.project.query, x).unflatten(-1, (-1, design.head_dim))
        key = apply_linear(module.project.key, y).unflatten(-1, (-1, design.head_dim))
        if turn is not None:
            query, key = turn(query), turn(key)
        group = design.heads // design.key_value_heads
        scores = torch.stack([query[:, h] @ key[:, h // group].T for h in range(design.heads)]) * design.scale
        size = torch.exp(scores if bias is None else scores + bias)
        size = size if seen is None else size * seen
        total = size.sum(-1, keepdim=True)
        return size / torch.where(total > 0, total, 1)

    def positioned(self, design, module, length):
        """The rotation of queries and keys (or None), and the additive attention bias (or None)."""
        distance = torch.arange(length) - torch.arange(length)[:, None]
        match design.position:
            case config.Rotary(base=base, stretch=None):
                return lambda x: rotate(x, base), None
            case config.RelativeBuckets():
                return None, module.position.weight[module.position.bucket(distance)].permute(2, 0, 1)
            case config.ALiBi():
                heads = design.blocks[0].attention.heads
                assert heads & (heads - 1) == 0, "the paper's formula is for powers of two"
                slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)], dtype=torch.float64)
                return None, -slopes[:, None, None] * distance.abs()
            case None:
                return None, None

    def fed(self, design, module, x):
        inner = apply_linear(module.up, x)
        if isinstance(design, config.Gated):
            inner = activate(design.activation, apply_linear(module.gate, x)) * inner
        else:
            inner = activate(design.activation, inner)
        return apply_linear(module.down, self.dropped(inner, design.dropout))
