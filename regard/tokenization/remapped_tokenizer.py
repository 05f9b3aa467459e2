"""Tokenizers whose published ids are not those that the library counts with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers

from regard.tokenization.io import TokenizerError, write_files
from regard.tokenization.tokenizer import Names, Tokenizer


class Renumbered(Tokenizer):
    """A tokenizer that cuts text with one vocabulary and numbers the pieces by another.

    It is saved as it was published: no `tokenizer.json` can say this.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        names: Names,
        *,
        ids: Mapping[str, int],
        numbers: Sequence[int],
        files: Mapping[str, bytes],
        tokenizer_class: str,
        family: str,
        longest: int | None,
        target: Tokenizer | None = None,
    ) -> None:
        self._published = ids
        self._by_id = {number: token for token, number in ids.items()}
        self._numbers = numbers
        self._files = files
        self._class = tokenizer_class
        super().__init__(core, names, family=family, longest=longest, target=target)

    def _find(self, token: str | None) -> int | None:
        return None if token is None else self._published.get(token)

    def vocabulary(self) -> dict[str, int]:
        """All tokens with their published ids."""
        return dict(self._published)

    def token(self, number: int) -> str:
        """The token with this id."""
        if number not in self._by_id:
            raise TokenizerError(f"there is no token with id {number}: the vocabulary ends at {len(self) - 1}")
        return self._by_id[number]

    def parts(self) -> dict[int, tuple[int, int]]:
        """The two tokens that each token was merged from, by published ids; a piece that has none parts nothing."""
        numbers, whole = self._numbers, {self.special.unknown, *self.controls.values()}
        found = {numbers[token]: (numbers[left], numbers[right]) for token, (left, right) in super().parts().items()}
        return {token: pair for token, pair in found.items() if whole.isdisjoint((token, *pair))}

    def files(self) -> dict[str, bytes]:
        """The files that `save` writes: those that were read, with a class by which transformers opens them."""
        config = json.loads(self._files.get("tokenizer_config.json", b"{}"))
        config.setdefault("tokenizer_class", self._class)
        if self.longest is not None:
            config.setdefault("model_max_length", self.longest)
        written = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
        return {**self._files, "tokenizer_config.json": written}

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder, both sides of it, in the layout in which it was published."""
        write_files(Path(folder), self.files())
