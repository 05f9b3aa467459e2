"""A tokenizer: text to ids and back. What is written in a text is text, what is added is known by name."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import tokenizers

from regard.tokenization.io import TokenizerError, write_files
from regard.tokenization.merges import merged
from regard.tokenization.special_escaping import plain

KEYS = {
    "padding": "pad_token",
    "unknown": "unk_token",
    "begin": "bos_token",
    "end": "eos_token",
    "separator": "sep_token",
    "classify": "cls_token",
    "mask": "mask_token",
}
"""What `tokenizer_config.json` calls the special tokens."""


@dataclass(frozen=True)
class Encoded:
    """A text as tokens. All lists have the same length."""

    ids: list[int]
    tokens: list[str]
    """The tokens as the vocabulary writes them."""
    offsets: list[tuple[int, int]]
    """First character and end of each token in the text as it was given; (0, 0) for tokens that were added."""
    segments: list[int]
    """The segment ids that the model was trained with: BERT counts texts; RoBERTa knows one segment only."""
    special: list[bool]
    """True where a token was added and stands for no text."""
    sides: list[int | None] = field(default_factory=list)
    """Which text a token's offsets belong to: 0, 1 for a pair's second, None for tokens that were added."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class Names:
    """The special tokens by what they are for, as the vocabulary writes them; None where there is none."""

    padding: str | None = None
    unknown: str | None = None
    begin: str | None = None
    end: str | None = None
    separator: str | None = None
    classify: str | None = None
    mask: str | None = None


@dataclass(frozen=True, kw_only=True)
class Special:
    """The ids of the special tokens by what they are for; None where there is none.

    `padding` and `unknown` are never the end of a text in disguise: where files name one token for both, there is none.
    """

    padding: int | None
    unknown: int | None
    begin: int | None
    end: int | None
    separator: int | None
    classify: int | None
    mask: int | None


class Tokenizer:
    """Text to ids and back.

        tokenizer = load("folder")                                  # from regard.tokenization.tokenizer_loader import load
        tokenizer.encode("A man rides a horse.").ids
        tokenizer.decode([101, 1037, 2158, 102])

    Nothing is ever cut off or padded: `longest` says what the model was made for, and who calls decides.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        names: Names,
        *,
        family: str | None = None,
        longest: int | None = None,
        truncation: int | None = None,
        languages: Mapping[str, int] | None = None,
        default_language: str | None = None,
        target: Tokenizer | None = None,
    ) -> None:
        core.no_truncation()
        core.no_padding()
        self._core = core
        self._text = plain(core)
        self._reading: tokenizers.Tokenizer | None = None
        self._size: int | None = None
        self._default_language = default_language
        self.names = names
        self.family = family
        self.longest = longest
        """The longest row of tokens that the model was made for, as published."""
        self.truncation = truncation
        """The length at which the file would have cut rows; it is not applied."""
        self.languages: Mapping[str, int] = dict(languages or {})
        """Ids of the languages' codes, by name."""
        self.controls: Mapping[str, int] = {}
        """Ids of the control codes, by name."""
        self.target: Tokenizer = target or self
        """The tokenizer of the target side: itself, unless the two sides differ."""
        self.special = self._special()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """From another process: the library forgets on the way that special tokens in a text are text."""
        self.__dict__.update(state)
        self._text.encode_special_tokens = True

    def _special(self) -> Special:
        ids = {role: self._find(getattr(self.names, role)) for role in KEYS}
        for role in ("padding", "unknown"):
            ids[role] = None if ids[role] == ids["end"] else ids[role]
        return Special(**ids)

    def _find(self, token: str | None) -> int | None:
        return None if token is None else self._core.token_to_id(token)

    # -- the vocabulary

    def __len__(self) -> int:
        """The size of the vocabulary: the highest id and one. Published files may have gaps."""
        if self._size is None:
            self._size = max(self.vocabulary().values(), default=-1) + 1
        return self._size

    def vocabulary(self) -> dict[str, int]:
        """All tokens with their ids."""
        return self._core.get_vocab(with_added_tokens=True)

    def token(self, number: int) -> str:
        """The token with this id."""
        found = self._core.id_to_token(number) if number >= 0 else None
        if found is None:
            raise TokenizerError(f"there is no token with id {number}: the vocabulary ends at {len(self) - 1}")
        return found

    def id(self, token: str) -> int:
        """The id of a token, written as in the vocabulary."""
        found = self._find(token)
        if found is None:
            raise TokenizerError(f"{token!r} is not in the vocabulary{_perhaps(token, self.vocabulary())}")
        return found

    def parts(self) -> dict[int, tuple[int, int]]:
        """The two tokens that each token was merged from, all by id. Only byte-pair vocabularies have such tokens.

        Special tokens and those that were added to the vocabulary are never parted, nor is one a part of another token:
        they stand for themselves, even where a merge could make them.
        """
        model = json.loads(self._core.to_str())["model"]
        whole = {token.content for token in self._core.get_added_tokens_decoder().values()} | {*astuple(self.names)}
        ids = model["vocab"]
        return {
            ids[token]: (ids[left], ids[right])
            for token, (left, right) in merged(model).items()
            if whole.isdisjoint((token, left, right))
        }

    # -- text to ids

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        special_tokens: bool = True,
        read_special: bool = False,
        language: str | None = None,
        control: str | None = None,
    ) -> Encoded:
        """One text, or a pair of texts, as tokens.

        `special_tokens` adds what the model expects around a text. A special token that is written in the text is text,
        unless `read_special` says that it means the token. `language` and `control` are codes by name, for the models
        that know them (`languages`, `controls`).
        """
        pairs = None if pair is None else [pair]
        return self.encode_many(
            [text],
            pairs,
            special_tokens=special_tokens,
            read_special=read_special,
            language=language,
            control=control,
        )[0]

    def encode_many(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special_tokens: bool = True,
        read_special: bool = False,
        language: str | None = None,
        control: str | None = None,
    ) -> list[Encoded]:
        """Many texts, or pairs of texts, as tokens, on all cores. The options are those of `encode`."""
        code, first = self._language(language), self._control(control)
        if isinstance(texts, str):
            raise TokenizerError("one text was given where several were expected: use [text], or `encode`")
        if pairs is not None and len(pairs) != len(texts):
            raise TokenizerError(f"there are {len(texts)} texts and {len(pairs)} texts to pair them with")
        rows = self._rows(texts, pairs, special_tokens, read_special)
        return [self._with_codes(row, code, first) for row in rows]

    def ids_of(
        self,
        texts: Sequence[str],
        *,
        special_tokens: bool = True,
        language: str | None = None,
        control: str | None = None,
    ) -> list[list[int]]:
        """The ids alone, for whole corpora: the same ids as `encode_many`, without the cost of offsets."""
        if language is not None or control is not None:
            rows = self.encode_many(texts, special_tokens=special_tokens, language=language, control=control)
            return [row.ids for row in rows]
        return self._ids(texts, special_tokens)

    def _rows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, special_tokens: bool, read_special: bool
    ) -> list[Encoded]:
        core = self._reader() if read_special else self._text
        batch: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        try:
            encodings = core.encode_batch(batch, add_special_tokens=special_tokens)
        except (TypeError, UnicodeEncodeError):
            raise _unreadable([*texts, *(pairs or ())]) from None
        return [_encoded(encoding) for encoding in encodings]

    def _ids(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        try:
            encodings = self._text.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
        except (TypeError, UnicodeEncodeError):
            raise _unreadable(texts) from None
        return [encoding.ids for encoding in encodings]

    def _reader(self) -> tokenizers.Tokenizer:
        """The same tokenizer, for which special tokens in a text are special: a copy, so that threads do not meet."""
        if self._reading is None:
            reading = tokenizers.Tokenizer.from_str(self._core.to_str())
            reading.encode_special_tokens = False
            self._reading = reading
        return self._reading

    def _language(self, name: str | None) -> int | None:
        return None if name is None else _code(name, self.languages, "language")

    def _control(self, name: str | None) -> int | None:
        return None if name is None else _code(name, self.controls, "control code")

    def _with_codes(self, row: Encoded, code: int | None, first: int | None) -> Encoded:
        """A row with its language's code in the place of the default one, and a control code before it."""
        if code is not None:
            default = self.languages[self._default_language] if self._default_language else None
            for place, (number, added) in enumerate(zip(row.ids, row.special, strict=True)):
                if added and number == default:
                    row.ids[place], row.tokens[place] = code, self.token(code)
        return row if first is None else _before(first, self.token(first), row)

    # -- ids to text

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """The text of a row of ids: the inverse of `encode` wherever the vocabulary allows it."""
        return self.decode_many([ids], keep_special=keep_special)[0]

    def decode_many(self, rows: Iterable[Iterable[int]], *, keep_special: bool = False) -> list[str]:
        """The texts of many rows of ids."""
        numbers = [[int(number) for number in row] for row in rows]
        self._check(numbers)
        return self._texts(numbers, keep_special)

    def _check(self, rows: list[list[int]]) -> None:
        lowest, highest = min(map(_lowest, rows), default=0), max(map(_highest, rows), default=0)
        if lowest < 0 or (highest > 0 and highest >= len(self)):
            wrong = lowest if lowest < 0 else highest
            raise TokenizerError(f"there is no token with id {wrong}: the vocabulary ends at {len(self) - 1}")

    def _texts(self, rows: list[list[int]], keep_special: bool) -> list[str]:
        return self._core.decode_batch(rows, skip_special_tokens=not keep_special)

    # -- to disk

    def files(self) -> dict[str, bytes]:
        """The files that `save` writes: a fast tokenizer that opens in transformers too."""
        values: dict[str, Any] = {KEYS[role.name]: getattr(self.names, role.name) for role in fields(self.names)}
        values |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        if self.longest is not None:
            values["model_max_length"] = self.longest
        if self.family is not None:
            values["regard_family"] = self.family
        values = {key: value for key, value in values.items() if value is not None}
        return {
            "tokenizer.json": (_exact(self._core) + "\n").encode(),
            "tokenizer_config.json": (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode(),
        }

    def fingerprint(self) -> str:
        """A name for exactly this tokenizer: two that encode differently have different ones."""
        digest = hashlib.sha256()
        for side in (self, self.target) if self.target is not self else (self,):
            for name, content in side.files().items():
                digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder; a target side of its own goes to the folder `target` in it."""
        write_files(Path(folder), self.files())
        if self.target is not self:
            write_files(Path(folder) / "target", self.target.files())

    def with_target(self, target: Tokenizer) -> Tokenizer:
        """The same tokenizer with another one for the target side."""
        return Tokenizer(
            self._core,
            self.names,
            family=self.family,
            longest=self.longest,
            truncation=self.truncation,
            languages=self.languages,
            default_language=self._default_language,
            target=target,
        )


def _exact(core: tokenizers.Tokenizer) -> str:
    """The tokenizer as JSON that is read back as it was written.

    The library reads long decimal fractions a little differently than they were meant, so that a score of a unigram
    vocabulary would change with every copy; fifteen digits it reads exactly.
    """
    if not isinstance(core.model, tokenizers.models.Unigram):
        return core.to_str(pretty=True)
    data = json.loads(core.to_str())
    data["model"]["vocab"] = [[token, float(f"{score:.15g}")] for token, score in data["model"]["vocab"]]
    return json.dumps(data, indent=2, ensure_ascii=False)


def _encoded(encoding: tokenizers.Encoding) -> Encoded:
    special = [flag == 1 for flag in encoding.special_tokens_mask]
    return Encoded(
        ids=encoding.ids,
        tokens=encoding.tokens,
        offsets=encoding.offsets,
        segments=encoding.type_ids,
        special=special,
        sides=encoding.sequence_ids,
    )


def _before(number: int, token: str, row: Encoded) -> Encoded:
    """A row with one more token before it."""
    return Encoded(
        ids=[number, *row.ids],
        tokens=[token, *row.tokens],
        offsets=[(0, 0), *row.offsets],
        segments=[0, *row.segments],
        special=[True, *row.special],
        sides=[None, *row.sides],
    )


def _unreadable(texts: Iterable[object]) -> TokenizerError:
    """Says which text is no text, where the library only says that something was wrong."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return TokenizerError(f"text {number} is no text: {type(text).__name__}")
        for place, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                return TokenizerError(
                    f"text {number}, character {place}: U+{ord(character):04X} is half of a character, which no file "
                    "can hold. Was the text read with errors='surrogateescape'?"
                )
    return TokenizerError("the texts cannot be read as text")


def _code(name: str, codes: Mapping[str, int], what: str) -> int:
    if not codes:
        raise TokenizerError(f"{what} {name!r}: this tokenizer knows no {what}s")
    if name not in codes:
        raise TokenizerError(f"{what} {name!r} is not known{_perhaps(name, codes)}; known are {', '.join(codes)}")
    return codes[name]


def _perhaps(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def _lowest(row: list[int]) -> int:
    return min(row, default=0)


def _highest(row: list[int]) -> int:
    return max(row, default=0)
