"""caption: a sentence about an image. Reading images, training and using it follow."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.example import CaptionedImage
from regard.tasks.generated_text import GeneratedText
from regard.tasks.inputs import IMAGE
from regard.tasks.options import option
from regard.training.task import Task
from regard.transformer.interface import Predicts, Reads


@dataclass(frozen=True, kw_only=True)
class CaptionOptions:
    """Options of captioning."""

    beam: int | None = option(None, flags=("--beam", "--num-beams"), at_least=1)
    """Beam size; 1 is greedy search. [from the generation config, else 1]"""
    max_new_tokens: int | None = option(None, at_least=1)
    """Maximum number of new tokens."""


@dataclass(frozen=True, kw_only=True)
class ImageCaption(GeneratedText):
    """The caption of one image."""


CAPTION = Task(
    name="caption",
    summary="Write a sentence about IMAGE with MODEL: one output line per input line, in order.",
    input=IMAGE,
    options=CaptionOptions,
    result=ImageCaption,
    example=CaptionedImage,
    reads=frozenset({Reads.IMAGE}),
    predicts=frozenset({Predicts.NEXT_TOKEN}),
    architectures=("ForConditionalGeneration",),
)
