"""Special tokens that are written in a text are text. Some vocabularies need help with that."""

from __future__ import annotations

import json

import tokenizers
from tokenizers import models


def plain(core: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer, for which no text gives a special token; ids are the same.

    The library can leave special tokens unread (`encode_special_tokens`), but a vocabulary that holds them among its
    pieces may still find them there: a unigram model takes `</s>` in a text for the piece `</s>`. In such a vocabulary
    they get a space into their name here, which no piece of a text has.
    """
    core.encode_special_tokens = True
    special = {token.content for token in core.get_added_tokens_decoder().values() if token.special}
    if not isinstance(core.model, models.Unigram) and not any(_found(core, token) for token in special):
        return core
    data = json.loads(core.to_str())
    model = data["model"]
    special -= {model.get("unk_token")}
    match model["type"]:
        case "Unigram":
            model["vocab"] = [[_hidden(token, special), score] for token, score in model["vocab"]]
            inside = {token for token, _ in model["vocab"]}
        case "WordLevel":
            model["vocab"] = {_hidden(token, special): number for token, number in model["vocab"].items()}
            inside = set(model["vocab"])
        case "BPE":
            model["merges"] = [pair for pair in model["merges"] if _joined(pair) not in special]
            inside = set()
        case _:
            return core
    for token in data["added_tokens"]:
        if f" {token['content']}" in inside and token["content"] in special:
            token["content"] = f" {token['content']}"
    copy = tokenizers.Tokenizer.from_str(json.dumps(data))
    copy.encode_special_tokens = True
    return copy


def _found(core: tokenizers.Tokenizer, token: str) -> bool:
    return core.token_to_id(token) in core.encode(token, add_special_tokens=False).ids


def _hidden(token: str, special: set[str]) -> str:
    return f" {token}" if token in special else token


def _joined(pair: list[str] | str) -> str:
    return "".join(pair.split(" ") if isinstance(pair, str) else pair)
