"""The same network made fast for inference on a CPU. Read it in this order: matrix, int8, parts, compiled; attention,
kept, block, stack, embedding, writer; network; then quality, and for shortlists shortlist and listed."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "Precision": "regard.engine.linear",
        "prepare": "regard.engine.compiler",
    },
)
