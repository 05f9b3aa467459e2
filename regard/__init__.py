"""Transformers: training, loading, inference and inspection of all well-known families, built from shared modules."""

from regard.lazy import attach
from regard.threads import configure_openmp

configure_openmp()  # before anything imports torch, which reads these settings once

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
