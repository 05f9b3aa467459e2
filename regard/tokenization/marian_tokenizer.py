"""Marian: a SentencePiece model for each side, and a `vocab.json` that numbers the pieces of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import tokenizers
from tokenizers import models

from regard.tokenization.io import TokenizerError
from regard.tokenization.remapped_tokenizer import Renumbered
from regard.tokenization.sentencepiece_model import Kind, PieceKind, SentencePiece, read
from regard.tokenization.sentencepiece_normalizer import Normalizer
from regard.tokenization.special_tokens import Theirs, content
from regard.tokenization.tokenizer import Encoded, Names
from regard.tokenization.vocab_files import read_vocabulary

CODE = re.compile(r">>.*?<<", re.DOTALL)
FILES = (
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


class Marian(Renumbered):
    """One side of a Marian model.

    A text may begin with the code of the language to translate to, as in `>>fr<< Good morning.`, which is read as such:
    that is how these models are spoken to. `encode(text, language="fr")` says the same.
    """

    _normalizer: Normalizer
    _unknown_piece: int

    def _rows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, special_tokens: bool, read_special: bool
    ) -> list[Encoded]:
        rows = [self._row([text], read_special, special_tokens) for text in texts] if pairs is None else []
        for couple in zip(texts, pairs or (), strict=False):
            rows.append(self._row(couple, read_special, special_tokens))
        return rows

    def _row(self, sides: Sequence[str], read_special: bool, special_tokens: bool) -> Encoded:
        row = Encoded([], [], [], [], [], [])
        for side, text in enumerate(sides):
            for start, part, number in self._parts(text, read_special):
                if number is not None:
                    _append(row, number, part, (start, start + len(part)), side)
                    continue
                normal, begins, ends = self._normalizer.aligned(part)
                encoding = self._core.encode(normal, add_special_tokens=False)
                for piece, surface, (first, last) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
                    place = (start + begins[first], start + ends[last - 1])
                    found = self._number(piece, normal[first:last])
                    token = surface if piece == self._unknown_piece else self.token(found)
                    _append(row, found, token, place, side)
        if special_tokens and self.special.end is not None:
            _append(row, self.special.end, self.token(self.special.end), (0, 0), None)
        return row

    def _ids(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        end = [self.special.end] if special_tokens and self.special.end is not None else []
        parts = [list(self._parts(text, False)) for text in texts]
        normal = [self._normalizer.normal(part) for row in parts for _, part, number in row if number is None]
        encodings = iter(self._core.encode_batch(normal, add_special_tokens=False))
        rows = []
        for row in parts:
            ids: list[int] = []
            for _, _, number in row:
                ids += [number] if number is not None else self._numbered(next(encodings))
            rows.append(ids + end)
        return rows

    def _numbered(self, encoding: tokenizers.Encoding) -> list[int]:
        if self._unknown_piece not in encoding.ids:
            return [self._numbers[piece] for piece in encoding.ids]
        return [self._number(piece, text) for piece, text in zip(encoding.ids, encoding.tokens, strict=True)]

    def _number(self, piece: int, surface: str) -> int:
        """The published id of a piece. What this side's model does not know may be in the vocabulary all the same."""
        if piece == self._unknown_piece:
            return self._published.get(surface, self._numbers[piece])
        return self._numbers[piece]

    def _parts(self, text: str, read_special: bool) -> Iterator[tuple[int, str, int | None]]:
        """Where a part of the text begins, the part, and its id if it stands for one token."""
        if not isinstance(text, str):
            raise TokenizerError(f"a text is no text: {type(text).__name__}")
        names = [self.names.end, self.names.unknown, self.names.padding] if read_special else []
        special = "|".join(re.escape(name) for name in sorted(filter(None, names), key=len, reverse=True))
        cuts = [match.span() for match in re.finditer(special, text)] if special else []
        begin = 0
        for first, last in [*cuts, (len(text), len(text))]:
            yield from self._with_code(begin, text[begin:first])
            if last > first:
                yield first, text[first:last], self._published[text[first:last]]
            begin = last

    def _with_code(self, start: int, text: str) -> Iterator[tuple[int, str, int | None]]:
        code = CODE.match(text)
        if code:
            unknown = self.special.unknown
            yield start, code[0], self._published.get(code[0], unknown if unknown is not None else 0)
            start, text = start + code.end(), text[code.end() :]
        if text:
            yield start, text, None

    def _with_codes(self, row: Encoded, code: int | None, first: int | None) -> Encoded:
        return super()._with_codes(row, None, code if code is not None else first)

    def _texts(self, rows: list[list[int]], keep_special: bool) -> list[str]:
        special = {self.special.end, self.special.unknown, self.special.padding} - {None}
        kept = rows if keep_special else [[number for number in row if number not in special] for row in rows]
        return ["".join(self._words(row, special)).replace("▁", " ").strip() for row in kept]

    def _words(self, row: list[int], special: set[int | None]) -> Iterator[str]:
        """Runs of pieces, each without the space that it begins with, and special tokens with one after them."""
        begins = True
        for number in row:
            token = self.token(number)
            yield f"{token} " if number in special else token.removeprefix("▁") if begins else token
            begins = number in special


def _append(row: Encoded, number: int, token: str, place: tuple[int, int], side: int | None) -> None:
    row.ids.append(number)
    row.tokens.append(token)
    row.offsets.append(place)
    row.segments.append(0)
    row.special.append(side is None)
    row.sides.append(side)


def load(folder: Path, theirs: Theirs, longest: int | None) -> Marian:
    """Read both sides of a Marian model. The target side is `.target`."""
    for name in ("source.spm", "target.spm", "vocab.json"):
        if not (folder / name).is_file():
            raise TokenizerError(f"{folder}: a Marian tokenizer is source.spm, target.spm and vocab.json; {name} lacks")
    files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    ids = read_vocabulary(folder / "vocab.json")
    other = read_vocabulary(folder / "target_vocab.json") if theirs.get("separate_vocabs") else ids
    target = _side(folder / "target.spm", other, files, theirs, longest or 512, None)
    return _side(folder / "source.spm", ids, files, theirs, longest or 512, target)


def _side(
    path: Path, ids: dict[str, int], files: dict[str, bytes], theirs: Theirs, longest: int, target: Marian | None
) -> Marian:
    names = Names(
        padding=content(theirs.get("pad_token", "<pad>")),
        unknown=content(theirs.get("unk_token", "<unk>")),
        end=content(theirs.get("eos_token", "</s>")),
    )
    if names.unknown not in ids:
        raise TokenizerError(f"{path.with_name('vocab.json')}: there is no {names.unknown} in it")
    model = read(path)
    result = Marian(
        _core(model, path),
        names,
        ids=ids,
        numbers=[ids.get(piece.text, ids[names.unknown]) for piece in model.pieces],
        files=files,
        tokenizer_class="MarianTokenizer",
        family="marian",
        longest=longest,
        target=target,
    )
    result._normalizer, result._unknown_piece = Normalizer(model), model.unknown
    codes = {token[2:-2]: number for token, number in ids.items() if token.startswith(">>") and token.endswith("<<")}
    result.languages = codes
    return result


def _core(model: SentencePiece, path: Path) -> tokenizers.Tokenizer:
    """The model's own pieces. Those that no text may contain get a space into their name, which no normal text has."""
    if model.kind is not Kind.UNIGRAM:
        raise TokenizerError(f"{path}: expected a unigram model, found {model.kind.name.lower()}")
    found_in_text = (PieceKind.NORMAL, PieceKind.USER_DEFINED)
    scores = [
        (piece.text if piece.kind in found_in_text else f" {number}", piece.score)
        for number, piece in enumerate(model.pieces)
    ]
    return tokenizers.Tokenizer(models.Unigram(scores, unk_id=model.unknown, byte_fallback=False))
