"""Word vectors: training, files, nearest neighbours, analogies and evaluation. Imports no torch."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "NearestNeighbours": "regard.vectors.nearest",
        "Neighbours": "regard.vectors.nearest",
        "Similarity": "regard.vectors.nearest",
    },
)
