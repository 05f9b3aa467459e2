"""Word vectors: training, files, nearest neighbours, analogies and evaluation. Imports no torch."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "NearestNeighbours": "regard.vectors.nearest",
        "Neighbours": "regard.vectors.nearest",
        "Similarity": "regard.vectors.nearest",
        "VectorFormat": "regard.vectors.vector_files",
        "WordVectors": "regard.vectors.word_vectors",
        "evaluate_analogies": "regard.vectors.word_evaluation",
        "evaluate_similarity": "regard.vectors.word_evaluation",
        "load": "regard.vectors.vector_files",
        "save": "regard.vectors.vector_files",
        "train": "regard.vectors.train_vectors",
    },
)
