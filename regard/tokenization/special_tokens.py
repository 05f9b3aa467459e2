"""Special tokens as published files name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer import KEYS, Names

Theirs = Mapping[str, Any]
"""What the files beside a vocabulary say: tokenizer_config.json, special_tokens_map.json, added_tokens.json."""

GUESSES = {
    "padding": ("[PAD]", "<pad>", "<|padding|>"),
    "unknown": ("[UNK]", "<unk>"),
    "begin": ("<s>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    "end": ("</s>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "separator": ("[SEP]", "<sep>"),
    "classify": ("[CLS]", "<cls>"),
    "mask": ("[MASK]", "<mask>"),
}
"""How the special tokens are usually written, for a tokenizer.json that stands alone."""


def content(value: object) -> str | None:
    """A special token's text: files write it as text, or as an object with a few flags."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def named(theirs: Theirs, usual: Names, core: Tokenizer) -> Names:
    """The special tokens by role: as the files say, or as the family has them; only what the vocabulary holds."""
    found = {}
    for role, key in KEYS.items():
        token = content(theirs[key]) if key in theirs else getattr(usual, role)
        found[role] = token if token is not None and core.token_to_id(token) is not None else None
    return Names(**found)


def guessed(core: Tokenizer) -> Names:
    """The special tokens by how they are usually written."""
    special = {token.content for token in core.get_added_tokens_decoder().values() if token.special}
    return Names(**{role: next((name for name in names if name in special), None) for role, names in GUESSES.items()})


def add(core: Tokenizer, theirs: Theirs, names: Names) -> None:
    """Let the tokenizer know its special tokens, and what files list as added to the vocabulary."""
    for number, value in sorted(_listed(theirs).items()):
        token = _added(value, special=isinstance(value, Mapping) and bool(value.get("special")))
        core.add_special_tokens([token]) if token.special else core.add_tokens([token])
        if core.token_to_id(token.content) != number:
            raise TokenizerError(
                f"token {token.content!r} is listed with id {number}, and the vocabulary gives it "
                f"{core.token_to_id(token.content)}: the files do not belong together"
            )
    for role, key in KEYS.items():
        name = getattr(names, role)
        if name is not None:
            value = theirs.get(key)
            core.add_special_tokens([_added(value if content(value) == name else name, special=True)])
    more = theirs.get("additional_special_tokens") or theirs.get("extra_special_tokens") or []
    for value in more.values() if isinstance(more, Mapping) else more:
        if content(value) is not None and core.token_to_id(content(value) or "") is not None:
            core.add_special_tokens([_added(value, special=True)])


def _listed(theirs: Theirs) -> dict[int, object]:
    """Added tokens by id, from either of the two places where files list them."""
    listed: dict[int, object] = {}
    for token, number in theirs.get("added_tokens.json", {}).items():
        listed[_whole(number)] = token
    for number, value in (theirs.get("added_tokens_decoder") or {}).items():
        listed[_whole(number)] = value
    return listed


def _whole(number: object) -> int:
    try:
        return int(str(number))
    except ValueError:
        raise TokenizerError(f"an added token is listed with id {number!r}: expected a whole number") from None


def _added(value: object, *, special: bool) -> AddedToken:
    text = content(value)
    if text is None:
        raise TokenizerError(f"a special token is written as {value!r}: expected text, or an object with `content`")
    if not isinstance(value, Mapping):
        return AddedToken(text, special=special, normalized=False)
    flags = {name: bool(value.get(name, False)) for name in ("lstrip", "rstrip", "single_word", "normalized")}
    return AddedToken(text, special=special, **flags)
