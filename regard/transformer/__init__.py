"""The Transformer architecture in plain PyTorch.

Reading order: config, embedding, position, batch_layout, mask, attention_kernel, attention, feedforward, normalization,
residual, block, stack, head_base, pooling, head, packing, interface, network_base, network; then cache, decoder_state,
initialization, activation_capture, attention_sites and summary. Transformer-XL and XLNet also use relative_attention,
adaptive, two_stream and span_search. Images use patches and dual_encoder.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Cache": "regard.transformer.cache",
        "BatchLayout": "regard.transformer.batch_layout",
        "build": "regard.transformer.network",
        "count_parameters": "regard.transformer.summary",
        "render_tree": "regard.transformer.summary",
        "module_tree": "regard.transformer.summary",
        "capture": "regard.transformer.activation_capture",
    },
)
