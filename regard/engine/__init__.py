"""Compiles a network for fast inference on a CPU.

Reading order: linear, linear_int8, modules_torch, modules_native; native_attention, kv_cache, hooks, native_block,
native_stack, native_embedding, decode_step; compiler; then quantization_error.
"""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Precision": "regard.engine.linear",
        "compile": "regard.engine.compiler",
    },
)
