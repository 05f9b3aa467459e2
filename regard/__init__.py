"""The Transformer, whole: all its well-known families from the same few parts."""

from regard.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "__version__": "regard.version",
        "load": "regard.model",
        "Model": "regard.model",
        "preset": "regard.families.registry",
        "presets": "regard.families.registry",
        "train": "regard.evaluation.train",
        "transformer_2017": "regard.families.transformer",
    },
)
