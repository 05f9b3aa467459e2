"""Encode special tokens in the input text as plain text. Some vocabularies need help with that."""

from __future__ import annotations

import json

import tokenizers
from tokenizers import models


def escape_special_tokens(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a backend with the same ids that never produces a special token from the input text.

    The library can ignore special tokens in a text (`encode_special_tokens`), but a vocabulary that contains them as
    ordinary tokens may still match them: a unigram model encodes `</s>` in a text as the piece `</s>`. In such a
    vocabulary they are renamed here with a leading space, which no piece of a text contains.
    """
    backend.encode_special_tokens = True
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    if not isinstance(backend.model, models.Unigram) and not any(
        _encodes_to_itself(backend, token) for token in special
    ):
        return backend
    data = json.loads(backend.to_str())
    model = data["model"]
    special -= {model.get("unk_token")}
    match model["type"]:
        case "Unigram":
            model["vocab"] = [[_escape(token, special), score] for token, score in model["vocab"]]
            vocab = {token for token, _ in model["vocab"]}
        case "WordLevel":
            model["vocab"] = {_escape(token, special): token_id for token, token_id in model["vocab"].items()}
            vocab = set(model["vocab"])
        case "BPE":
            model["merges"] = [pair for pair in model["merges"] if _merged_token(pair) not in special]
            vocab = set()
        case _:
            return backend
    for token in data["added_tokens"]:
        if f" {token['content']}" in vocab and token["content"] in special:
            token["content"] = f" {token['content']}"
    copy = tokenizers.Tokenizer.from_str(json.dumps(data))
    copy.encode_special_tokens = True
    return copy


def _encodes_to_itself(backend: tokenizers.Tokenizer, token: str) -> bool:
    return backend.token_to_id(token) in backend.encode(token, add_special_tokens=False).ids


def _escape(token: str, special: set[str]) -> str:
    return f" {token}" if token in special else token


def _merged_token(pair: list[str] | str) -> str:
    return "".join(pair.split(" ") if isinstance(pair, str) else pair)
