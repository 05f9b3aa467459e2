"""The equation of attention, as it is written and as it is computed.

`attention` is the definition. `fused` gives the same numbers from torch's fused kernel. `Kernel` is the part of a
network that chooses between them; whoever wants to see the weights watches it (`watching.py`).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.transformer.mask import Triangle, Visible

Query = Float[Tensor, "rows heads query dim"]
Key = Float[Tensor, "rows key_heads key dim"]
Bias = Float[Tensor, "#rows #heads query key"]
Weights = Float[Tensor, "rows heads query key"]


def shared(x: Key, heads: int) -> Float[Tensor, "rows heads key dim"]:
    """Keys or values for so many heads of queries: each is used by as many of them as there are more."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def weights(query: Query, key: Key, scale: float, visible: Visible = None, bias: Bias | None = None) -> Weights:
    """softmax(Q·Kᵀ·scale + bias): how much each query attends to each key; to nothing, if it sees none."""
    key = shared(key, query.shape[1])
    scores = (query * scale) @ key.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    if isinstance(visible, Triangle):
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()[None, None]
    if visible is None:
        return scores.softmax(dim=-1)
    return scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(~visible, 0)


def attention(
    query: Query,
    key: Key,
    value: Key,
    scale: float,
    visible: Visible = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Query:
    """softmax(Q·Kᵀ·scale + bias)·V: the mean of the values, weighted by how well their keys fit the query."""
    value = shared(value, query.shape[1])
    return functional.dropout(weights(query, key, scale, visible, bias), dropout) @ value


def fused(query: Query, key: Key, value: Key, scale: float, visible: Visible = None, bias: Bias | None = None) -> Query:
    """The same by torch's fused kernel, which never holds the weights."""
    triangle = isinstance(visible, Triangle) and query.shape[-2] > 1
    mask = visible if isinstance(visible, Tensor) else None
    if bias is not None:
        if triangle:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()[None, None]
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        mask = mask.expand(*query.shape[:2], -1, -1)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=triangle and mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


class Kernel(nn.Module):
    """Attention inside a network: fused, but in training with dropout of the weights, which needs the definition."""

    def __init__(self, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale = scale
        self.dropout = dropout

    def forward(self, query: Query, key: Key, value: Key, visible: Visible, bias: Bias | None) -> Query:
        """The answer to each query."""
        if self.training and self.dropout:
            return attention(query, key, value, self.scale, visible, bias, self.dropout)
        return fused(query, key, value, self.scale, visible, bias)

    def extra_repr(self) -> str:
        """Shown when the network is printed."""
        return f"scale={self.scale:.4g}, dropout={self.dropout}"
