"""The architecture. Read it in this order: config, embedding, position, rows, mask, kernels, attention, feedforward,
normalization, residual, block, stack, scores, pooling, head, door, network; then cache, initialization, watching and
describe. relative, adaptive, two_stream and answers are what Transformer-XL and XLNet need besides, patches and dual
what images need.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Cache": "regard.transformer.cache",
        "Rows": "regard.transformer.batch_layout",
        "build": "regard.transformer.network",
        "count": "regard.transformer.module_tree",
        "render": "regard.transformer.module_tree",
        "tree": "regard.transformer.module_tree",
        "watch": "regard.transformer.capture",
    },
)
