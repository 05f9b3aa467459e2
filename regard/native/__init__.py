"""Parts in C, for CPUs with AVX2, built once by the machine's own compiler and kept. Without one, torch does the
work."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__, {"available": "regard.native.library", "status": "regard.native.library"}
)
