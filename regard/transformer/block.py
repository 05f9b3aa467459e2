"""One layer of a stack.

x ─┬─ attention ──────── + ─┬─ cross_attention ── + ─┬─ feedforward ── + ─>
   └─────────────────────┘  └─────────────────────┘  └─────────────────┘
     looks at its own row     looks at the source      each position alone
                              (where there is one)
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, feedforward, relative_attention
from regard.transformer.attention import Looking, MultiHeadAttention, Source
from regard.transformer.cache import Kept, Remembered
from regard.transformer.residual import Residual


class Block(nn.Module):
    """Attention and feed-forward, each with its residual connection; a decoder's has cross-attention between them."""

    def __init__(self, design: config.Block, model_dim: int) -> None:
        super().__init__()

        def residual(sublayer: config.Attention | config.Dense | config.Gated) -> Residual:
            return Residual(design.order, design.norm, model_dim, sublayer.output_dropout)

        self.mask = design.mask
        self.attention = relative_attention.build(design.attention, model_dim)
        self.attention_residual = residual(design.attention)
        self.cross_attention = MultiHeadAttention(design.cross_attention, model_dim) if design.cross_attention else None
        self.cross_attention_residual = residual(design.cross_attention) if design.cross_attention else None
        self.feedforward = feedforward.build(design.feedforward, model_dim)
        self.feedforward_residual = residual(design.feedforward)

    def forward(
        self,
        x: Float[Tensor, "tokens model"],
        looking: Looking,
        source: Source | None = None,
        kept: Kept | Remembered | None = None,
        kept_source: Kept | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through the layer. Without a source, cross-attention is left out."""
        x = self.attention_residual(x, lambda x: self.attention(x, looking, kept=kept))
        if self.cross_attention is not None and self.cross_attention_residual is not None and source is not None:
            across = self.cross_attention
            x = self.cross_attention_residual(x, lambda x: across(x, looking, source, kept_source))
        return self.feedforward_residual(x, self.feedforward)
