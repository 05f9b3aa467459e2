"""C kernels for CPUs with AVX2, built once by the machine's own compiler and cached. Without a compiler, torch is used
instead."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__, {"available": "regard.native.library", "status": "regard.native.library"}
)
