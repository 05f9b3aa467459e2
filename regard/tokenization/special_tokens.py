"""Special tokens in published tokenizer files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from regard.tokenization.io import TokenizerError
from regard.tokenization.tokenizer import SPECIAL_TOKEN_KEYS, SpecialTokens

TokenizerConfig = Mapping[str, Any]
"""Merged content of tokenizer_config.json, special_tokens_map.json and added_tokens.json."""

COMMON_SPECIAL_TOKENS = {
    "pad": ("[PAD]", "<pad>", "<|padding|>"),
    "unk": ("[UNK]", "<unk>"),
    "bos": ("<s>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("</s>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "sep": ("[SEP]", "<sep>"),
    "cls": ("[CLS]", "<cls>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Common spellings of the special tokens, for a tokenizer.json without a tokenizer_config.json."""


def token_content(value: object) -> str | None:
    """Return the text of a special token: files store it as a string, or as an object with `content` and flags."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def resolve_special_tokens(config: TokenizerConfig, defaults: SpecialTokens, backend: Tokenizer) -> SpecialTokens:
    """Return the special tokens by role: from the config, else the family's; None if not in the vocabulary."""
    tokens = {}
    for role, key in SPECIAL_TOKEN_KEYS.items():
        token = token_content(config[key]) if key in config else getattr(defaults, role)
        tokens[role] = token if token is not None and backend.token_to_id(token) is not None else None
    return SpecialTokens(**tokens)


def guess_special_tokens(backend: Tokenizer) -> SpecialTokens:
    """Guess the special tokens by role from their common spellings."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return SpecialTokens(
        **{
            role: next((token for token in spellings if token in special), None)
            for role, spellings in COMMON_SPECIAL_TOKENS.items()
        }
    )


def register_tokens(backend: Tokenizer, config: TokenizerConfig, special_tokens: SpecialTokens) -> None:
    """Register the special tokens, and the added tokens of the config, with the backend."""
    for token_id, value in sorted(_added_tokens_by_id(config).items()):
        token = _to_added_token(value, special=isinstance(value, Mapping) and bool(value.get("special")))
        backend.add_special_tokens([token]) if token.special else backend.add_tokens([token])
        if backend.token_to_id(token.content) != token_id:
            raise TokenizerError(
                f"added token {token.content!r} has id {token_id} in the config and "
                f"{backend.token_to_id(token.content)} in the vocabulary: the files are from different models"
            )
    for role, key in SPECIAL_TOKEN_KEYS.items():
        content = getattr(special_tokens, role)
        if content is not None:
            value = config.get(key)
            value = value if token_content(value) == content else content
            backend.add_special_tokens([_to_added_token(value, special=True)])
    extra = config.get("additional_special_tokens") or config.get("extra_special_tokens") or []
    for value in extra.values() if isinstance(extra, Mapping) else extra:
        if token_content(value) is not None and backend.token_to_id(token_content(value) or "") is not None:
            backend.add_special_tokens([_to_added_token(value, special=True)])


def _added_tokens_by_id(config: TokenizerConfig) -> dict[int, object]:
    """Return the added tokens by id, from added_tokens.json and from `added_tokens_decoder`."""
    tokens: dict[int, object] = {}
    for token, token_id in config.get("added_tokens.json", {}).items():
        tokens[_parse_id(token_id)] = token
    for token_id, value in (config.get("added_tokens_decoder") or {}).items():
        tokens[_parse_id(token_id)] = value
    return tokens


def _parse_id(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise TokenizerError(f"added token id {value!r}: expected an integer") from None


def _to_added_token(value: object, *, special: bool) -> AddedToken:
    content = token_content(value)
    if content is None:
        raise TokenizerError(f"invalid special token {value!r}: expected a string, or an object with `content`")
    if not isinstance(value, Mapping):
        return AddedToken(content, special=special, normalized=False)
    flags = {name: bool(value.get(name, False)) for name in ("lstrip", "rstrip", "single_word", "normalized")}
    return AddedToken(content, special=special, **flags)
