"""The architecture. Read it in this order: config, embedding, position, rows, mask, kernels, attention, feedforward,
normalization, residual, block, stack, head, network; then cache, initialization, watch and tree.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Cache": "regard.transformer.cache",
        "Rows": "regard.transformer.rows",
        "build": "regard.transformer.network",
        "count": "regard.transformer.tree",
        "render": "regard.transformer.tree",
        "tree": "regard.transformer.tree",
        "watch": "regard.transformer.watch",
    },
)
