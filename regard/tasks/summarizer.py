"""The `Summarizer`: short texts for long ones, with an encoder-decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from regard.tasks.model_parts import ModelParts
from regard.tasks.summarize import SummarizeOptions, Summary
from regard.tasks.translate import TranslateOptions, Translation
from regard.tasks.translator import Translator
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import BUFFER_SIZE

PREFIX_NAMES = ("summarization", "summarize")
"""The names of the prefix for summaries in published configs (T5)."""
SAMPLE = "The length of a summary is a number of words, and the network counts in tokens that are often shorter."


class Summarizer:
    """An encoder-decoder network and its tokenizer, ready to summarize."""

    def __init__(self, model: ModelParts, options: SummarizeOptions) -> None:
        config, max_new_tokens = model.generation_config, options.max_new_tokens
        if options.length is not None:
            tokens = options.length * tokens_per_word(model.tokenizer.target)
            max_new_tokens = max(1, round(1.25 * tokens))
            config = replace(config, min_new_tokens=min(round(0.75 * tokens), max_new_tokens))
        self.translator = Translator(
            model.network,
            model.tokenizer,
            config,
            TranslateOptions(
                prefix=find_prefix(model) if options.prefix is None else options.prefix,
                beam=options.beam,
                length_penalty=options.length_penalty,
                max_new_tokens=max_new_tokens,
                batch_size=options.batch_size,
            ),
        )

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Summary]:
        """Summarize every text; results come in the order of the texts.

        A text that is too long for the network is summarized in parts of whole sentences, whose summaries are joined.
        """
        return map(_to_summary, self.translator.run(inputs, buffer_size=buffer_size))

    def stream(self, text: str) -> Iterator[str | Summary]:
        """Summarize one text: yield parts of the summary as soon as they can no longer change, then the result."""
        for event in self.translator.stream(text):
            yield event if isinstance(event, str) else _to_summary(event)


def find_prefix(model: ModelParts) -> str | None:
    """Return the text that the model expects before every source: what it was trained with, or T5's for summaries."""
    stored = model.info.get("prompts", {}).get("summarize")
    published = (model.generation_config.prefixes.get(name) for name in PREFIX_NAMES)
    return next((prefix for prefix in (stored, *published) if prefix is not None), None)


def tokens_per_word(tokenizer: Tokenizer) -> float:
    """Return the number of tokens of a word, measured on a sentence."""
    return len(tokenizer.encode(SAMPLE, add_special_tokens=False)) / len(SAMPLE.split())


def _to_summary(translation: Translation) -> Summary:
    return Summary(**{field.name: getattr(translation, field.name) for field in fields(Summary)})
