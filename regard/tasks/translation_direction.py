"""The translation direction, in the form that each kind of model requires.

mBART has a token for each language, multilingual Marian models put `>>de<<` before the source, and T5 takes a task
prefix in words, from the list in its folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from regard.tasks.generation_config import GenerationConfig
from regard.tokenization.tokenizer import Tokenizer

LANGUAGES = {
    **{"ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish"},
    **{"et": "Estonian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian"},
    **{"it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch"},
    **{"no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish"},
    **{"tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}
"""The English names of languages, with which T5 was trained, by code."""
TRANSLATION_TASK = re.compile(r"translation_(\w+)_to_(\w+)")
"""The names of T5's translation tasks: `translation_en_to_de`."""


@dataclass(frozen=True)
class TranslationDirection:
    """How to encode the source and how to start the target."""

    source_prefix: str
    """Text before every source."""
    tokenizer_language: str | None
    """Language code that is passed to the tokenizer."""
    generation_config: GenerationConfig
    """The generation config, with the token of the target language if the model has one."""


def translation_direction(
    tokenizer: Tokenizer,
    generation_config: GenerationConfig,
    source_language: str | None,
    target_language: str | None,
    prefix: str | None,
) -> TranslationDirection:
    """Return the direction for the given languages or prefix; raise a ValueError that lists the available ones."""
    if prefix is not None:
        return _by_prefix(tokenizer, generation_config, source_language, target_language, prefix)
    if tokenizer.languages:
        return _by_language_code(tokenizer, generation_config, source_language, target_language)
    if generation_config.prefixes:
        return _by_task_prefix(generation_config, source_language, target_language)
    if tokenizer.family == "t5" and (source_language is not None or target_language is not None):
        return TranslationDirection(t5_prefix(source_language, target_language), None, generation_config)
    if source_language is not None or target_language is not None:
        raise ValueError("this model has one source and one target language: leave out --from and --to")
    return TranslationDirection("", None, generation_config)


def _by_prefix(
    tokenizer: Tokenizer, generation_config: GenerationConfig, source: str | None, target: str | None, prefix: str
) -> TranslationDirection:
    """Use a literal prefix, or that of a task that the model's folder lists by name."""
    if tokenizer.languages:
        raise ValueError(
            "this model takes language codes, not a prefix: use --from/--to instead of --prefix. "
            f"Available: {_format_codes(tokenizer.languages)}"
        )
    if source is not None or target is not None:
        raise ValueError("--prefix cannot be combined with --from/--to: leave one out")
    text = generation_config.prefixes.get(prefix) or with_separator(prefix, tokenizer.family)
    return TranslationDirection(text, None, generation_config)


def with_separator(prefix: str, family: str | None) -> str:
    """Return a prefix with what separates it from the text: `question` is `question: ` for T5."""
    if not prefix or prefix[-1].isspace():
        return prefix
    return prefix + (": " if family == "t5" and prefix[-1].isalnum() else " ")


def t5_prefix(source: str | None, target: str | None) -> str:
    """Return the prefix with which T5 was trained to translate: `translate English to German: `."""
    names = [
        LANGUAGES.get(name.lower(), name) if name is not None and (name.lower() in LANGUAGES or len(name) > 3) else None
        for name in (source, target)
    ]
    if None in names:
        wrong = ", ".join(
            f"{flag} {name if name is not None else '(missing)'}"
            for flag, name, known in zip(("--from", "--to"), (source, target), names, strict=True)
            if known is None
        )
        raise ValueError(
            f"{wrong}: expected both languages, by code ({', '.join(sorted(LANGUAGES))}) or by English name. Any other "
            "prefix can be given literally: --prefix"
        )
    return f"translate {names[0]} to {names[1]}: "


def _by_task_prefix(
    generation_config: GenerationConfig, source: str | None, target: str | None
) -> TranslationDirection:
    prefixes = generation_config.prefixes
    pairs = {match.groups(): prefixes[name] for name in prefixes if (match := TRANSLATION_TASK.fullmatch(name))}
    if (source, target) in pairs:
        return TranslationDirection(pairs[source, target], None, generation_config)
    available = [f"--from {from_language} --to {to_language}" for from_language, to_language in pairs]
    available += [f"--prefix {name}" for name in prefixes if not TRANSLATION_TASK.fullmatch(name)]
    if source is None and target is None:
        raise ValueError(
            f"this model requires a task prefix. Available: {'; '.join(available)}. "
            'Any other prefix can be given literally (--prefix "" for none)'
        )
    raise ValueError(f"--from {source} --to {target} is not available. Available: {'; '.join(available)}")


def _by_language_code(
    tokenizer: Tokenizer, generation_config: GenerationConfig, source: str | None, target: str | None
) -> TranslationDirection:
    available = f"available languages: {_format_codes(tokenizer.languages)}"
    if target is None:
        raise ValueError(f"--to is required; {available}")
    target_code = _language_code(tokenizer, target)
    if tokenizer.family == "marian":
        if source is not None:
            raise ValueError("this model takes only a target language: leave out --from")
        return TranslationDirection("", target_code, generation_config)
    if source is None:
        raise ValueError(f"--from is required; {available}")
    # mBART's decoder start token is the language code; that of mBART-50 is EOS, and the language code is forced after
    # it.
    token_id = tokenizer.languages[target_code]
    generation_config = (
        replace(generation_config, forced_bos_token_id=token_id)
        if tokenizer.family == "mbart50"
        else replace(generation_config, decoder_start_token_id=token_id, forced_bos_token_id=None)
    )
    return TranslationDirection("", _language_code(tokenizer, source), generation_config)


def _language_code(tokenizer: Tokenizer, name: str) -> str:
    """Return the code itself, or the only code of this language: `de_DE` for `de`."""
    if name in tokenizer.languages:
        return name
    matches = [code for code in tokenizer.languages if code.split("_")[0] == name]
    if len(matches) == 1:
        return matches[0]
    raise ValueError(f"unknown language {name!r}; available languages: {_format_codes(tokenizer.languages)}")


def _format_codes(codes: Mapping[str, int]) -> str:
    return ", ".join(sorted(codes))
