"""One layer of a stack.

x ─┬─ attention ──────── + ─┬─ cross_attention ── + ─┬─ feedforward ── + ─>
   └─────────────────────┘  └─────────────────────┘  └─────────────────┘
     self-attention           cross-attention          position-wise
                              (with an encoder)
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.transformer import config, feedforward, relative_attention
from regard.transformer.attention import AttentionContext, EncoderOutput, MultiHeadAttention
from regard.transformer.cache import LayerKVCache, SegmentMemory
from regard.transformer.residual import Residual


class Block(nn.Module):
    """Self-attention, cross-attention (where there is an encoder) and feed-forward, each with a residual connection."""

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
        context: AttentionContext,
        encoder_output: EncoderOutput | None = None,
        cache: LayerKVCache | SegmentMemory | None = None,
        cross_cache: LayerKVCache | None = None,
    ) -> Float[Tensor, "tokens model"]:
        """Pass the tokens of a batch through the layer. Without `encoder_output`, cross-attention is skipped."""
        x = self.attention_residual(x, lambda x: self.attention(x, context, cache=cache))
        if (
            self.cross_attention is not None
            and self.cross_attention_residual is not None
            and encoder_output is not None
        ):
            attend = self.cross_attention
            x = self.cross_attention_residual(x, lambda x: attend(x, context, encoder_output, cross_cache))
        return self.feedforward_residual(x, self.feedforward)
