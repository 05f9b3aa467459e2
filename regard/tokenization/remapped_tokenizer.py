"""Tokenizers whose published ids differ from those of the backend."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import tokenizers

from regard.files import format_json
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer


class RemappedTokenizer(Tokenizer):
    """A tokenizer that splits text with the backend's vocabulary and maps the pieces to the ids of another one.

    It is saved in its published format, because `tokenizer.json` cannot express such a mapping.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: SpecialTokens,
        *,
        vocab: Mapping[str, int],
        id_map: Sequence[int],
        files: Mapping[str, bytes],
        tokenizer_class: str,
        family: str,
        model_max_length: int | None,
        target: Tokenizer | None = None,
    ) -> None:
        self._vocab = vocab
        self._id_to_token = {token_id: token for token, token_id in vocab.items()}
        self._id_map = id_map
        self._source_files = files
        self._tokenizer_class = tokenizer_class
        super().__init__(backend, special_tokens, family=family, model_max_length=model_max_length, target=target)

    def _find_id(self, token: str | None) -> int | None:
        return None if token is None else self._vocab.get(token)

    def get_vocab(self) -> dict[str, int]:
        """Return all tokens with their published ids."""
        return dict(self._vocab)

    def id_to_token(self, token_id: int) -> str:
        """Return the token with this published id."""
        if token_id not in self._id_to_token:
            raise self._unknown_id_error(token_id)
        return self._id_to_token[token_id]

    def merge_table(self) -> dict[int, tuple[int, int]]:
        """Return the two tokens that each token was merged from, by published ids.

        Merges are left out if a token in them is unknown to the published vocabulary, or is a control code.
        """
        id_map, atomic = self._id_map, {self.special_ids.unk, *self.control_codes.values()}
        table = {id_map[token]: (id_map[left], id_map[right]) for token, (left, right) in super().merge_table().items()}
        return {token: pair for token, pair in table.items() if atomic.isdisjoint((token, *pair))}

    def files(self) -> dict[str, bytes]:
        """Return the files of this tokenizer: those that were read, with the tokenizer class for transformers."""
        config = json.loads(self._source_files.get("tokenizer_config.json", b"{}"))
        config.setdefault("tokenizer_class", self._tokenizer_class)
        if self.model_max_length is not None:
            config.setdefault("model_max_length", self.model_max_length)
        content = format_json(config).encode()
        return {**self._source_files, "tokenizer_config.json": content}

    def folder_files(self) -> dict[str, bytes]:
        """Return the files that `save` writes: the published format has source and target side together."""
        return self.files()
