"""Scaled dot-product attention: the definition, and torch's fused kernel.

`attention` is the definition. `fused_attention` computes the same with torch's fused kernel. `AttentionKernel` is the
module of a network that chooses between them. To inspect attention weights, use `capture()`, which
registers a forward hook on it.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.transformer.mask import AttentionMask, Triangle

Query = Float[Tensor, "rows heads query dim"]
Key = Float[Tensor, "rows key_heads key dim"]
Bias = Float[Tensor, "#rows #heads query key"]
AttentionWeights = Float[Tensor, "rows heads query key"]


def repeat_kv(x: Key, heads: int) -> Float[Tensor, "rows heads key dim"]:
    """Repeat key or value heads to match the number of query heads (grouped-query attention)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def attention_weights(
    query: Query, key: Key, scale: float, attention_mask: AttentionMask = None, bias: Bias | None = None
) -> AttentionWeights:
    """Compute softmax(Q·Kᵀ·scale + bias). Masked weights are 0; a query that may attend to no key gets all zeros."""
    key = repeat_kv(key, query.shape[1])
    scores = (query * scale) @ key.transpose(-2, -1)
    if bias is not None:
        scores = scores + bias
    if isinstance(attention_mask, Triangle):
        attention_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()[None, None]
    if attention_mask is None:
        return scores.softmax(dim=-1)
    return (
        scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        .softmax(dim=-1)
        .masked_fill(~attention_mask, 0)
    )


def attention(
    query: Query,
    key: Key,
    value: Key,
    scale: float,
    attention_mask: AttentionMask = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Query:
    """Compute softmax(Q·Kᵀ·scale + bias)·V: for each query, the mean of the values weighted by attention."""
    value = repeat_kv(value, query.shape[1])
    return functional.dropout(attention_weights(query, key, scale, attention_mask, bias), dropout) @ value


def fused_attention(
    query: Query, key: Key, value: Key, scale: float, attention_mask: AttentionMask = None, bias: Bias | None = None
) -> Query:
    """Compute the same with torch's fused kernel, which never materialises the weights."""
    triangle = isinstance(attention_mask, Triangle) and query.shape[-2] > 1
    mask = attention_mask if isinstance(attention_mask, Tensor) else None
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


class AttentionKernel(nn.Module):
    """Attention inside a network: the fused kernel, or the definition in training with dropout of the weights."""

    def __init__(self, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale = scale
        self.dropout = dropout

    def forward(self, query: Query, key: Key, value: Key, attention_mask: AttentionMask, bias: Bias | None) -> Query:
        """Return the attention output for each query."""
        if self.training and self.dropout:
            return attention(query, key, value, self.scale, attention_mask, bias, self.dropout)
        return fused_attention(query, key, value, self.scale, attention_mask, bias)

    def extra_repr(self) -> str:
        """Return the settings to show when the network is printed."""
        return f"scale={self.scale:.4g}, dropout={self.dropout}"
