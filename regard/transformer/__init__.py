"""The architecture. Read it in this order: config, embedding, position, rows, mask, kernels, attention, feedforward,
normalization, residual, block, stack, head, network; then cache, initialization, watching and describe. relative,
adaptive and two_stream are what Transformer-XL and XLNet need besides.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Cache": "regard.transformer.cache",
        "Rows": "regard.transformer.rows",
        "build": "regard.transformer.network",
        "count": "regard.transformer.describe",
        "render": "regard.transformer.describe",
        "tree": "regard.transformer.describe",
        "watch": "regard.transformer.watching",
    },
)
