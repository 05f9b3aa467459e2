"""What a task needs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from regard.checkpoint.model_folder import ModelInfo
    from regard.checkpoint.sentence_folder import SentenceEncoder
    from regard.data.image_processor import ImageProcessor
    from regard.tasks.generation_config import GenerationConfig
    from regard.tokenization.tokenizer import Tokenizer


@runtime_checkable
class ModelParts(Protocol):
    """The parts of a model: what `regard.load` returns, or a model during its training."""

    @property
    def network(self) -> Any:
        """The network: see `regard.transformer.interface`."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""

    @property
    def generation_config(self) -> GenerationConfig:
        """The generation config."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels, in the order of the logits; empty if it has none."""

    @property
    def sentence_encoder(self) -> SentenceEncoder | None:
        """Pooling, maximum length and prompts of a sentence encoder; None if its folder has none."""

    @property
    def image_processor(self) -> ImageProcessor | None:
        """How images become pixel values; None if the network reads none."""

    @property
    def info(self) -> ModelInfo:
        """The content of regard.json; empty if there is none."""


@dataclass(frozen=True)
class InferenceParts:
    """The parts of a model (`ModelParts`) with another network, such as a compiled copy."""

    model: Any
    network: Any

    def __getattr__(self, name: str) -> Any:
        """Return another part of the model, read when it is needed."""
        return getattr(self.model, name)
