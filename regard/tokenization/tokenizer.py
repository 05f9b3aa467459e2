"""The `Tokenizer`: encodes text to token ids and decodes ids to text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import tokenizers

from regard.files import format_json, write_files
from regard.tokenization.backend_check import backend_errors
from regard.tokenization.io import TokenizerError
from regard.tokenization.merges import read_merge_table
from regard.tokenization.special_escaping import escape_special_tokens
from regard.transformer.suggestion import did_you_mean

SPECIAL_TOKEN_KEYS = {
    "pad": "pad_token",
    "unk": "unk_token",
    "bos": "bos_token",
    "eos": "eos_token",
    "sep": "sep_token",
    "cls": "cls_token",
    "mask": "mask_token",
}
"""Key of each special token role in `tokenizer_config.json`."""
GROUP_CHARACTERS = 1_000_000
"""Number of characters that are encoded by one call."""


@dataclass(frozen=True)
class Encoding:
    """The tokens of one text, or of a pair of texts. All lists have the same length."""

    ids: list[int]
    tokens: list[str]
    """The tokens as spelled in the vocabulary."""
    offsets: list[tuple[int, int]]
    """Character span (start, end) of each token in the input text; (0, 0) for added special tokens."""
    segments: list[int]
    """Token type ids as the model was trained with: BERT numbers the two texts; RoBERTa has one segment only."""
    special_tokens_mask: list[bool]
    """True for added special tokens, which correspond to no text."""
    sequence_ids: list[int | None] = field(default_factory=list)
    """The text that each token's offsets refer to: 0, 1 for the second of a pair, None for added special tokens."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Special tokens by role, as spelled in the vocabulary; None for a role without a token."""

    pad: str | None = None
    unk: str | None = None
    bos: str | None = None
    eos: str | None = None
    sep: str | None = None
    cls: str | None = None
    mask: str | None = None


@dataclass(frozen=True, kw_only=True)
class SpecialTokenIds:
    """Ids of the special tokens by role; None for a role without a token.

    `pad` and `unk` never equal `eos`: where the files name the EOS token for one of them too, that role is None.
    """

    pad: int | None
    unk: int | None
    bos: int | None
    eos: int | None
    sep: int | None
    cls: int | None
    mask: int | None


class Tokenizer:
    """Encodes text to token ids and decodes ids to text.

        tokenizer = load_tokenizer("folder")                        # from regard.tokenization import load_tokenizer
        tokenizer.encode("A man rides a horse.").ids
        tokenizer.decode([101, 1037, 2158, 102])

    A tokenizer never truncates or pads. `model_max_length` is the length that the model supports; the caller truncates.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: SpecialTokens,
        *,
        family: str | None = None,
        model_max_length: int | None = None,
        truncation_length: int | None = None,
        languages: Mapping[str, int] | None = None,
        default_language: str | None = None,
        target: Tokenizer | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        with backend_errors("be prepared"):
            self._escaping_backend = escape_special_tokens(backend)
        self._parsing_backend: tokenizers.Tokenizer | None = None
        self._size: int | None = None
        self._default_language = default_language
        self.special_tokens = special_tokens
        self.family = family
        self.model_max_length = model_max_length
        """The model's maximum sequence length, as published."""
        self.truncation_length = truncation_length
        """The truncation length set in `tokenizer.json`; it is not applied."""
        self.languages: Mapping[str, int] = dict(languages or {})
        """Ids of the language codes, by name."""
        self.control_codes: Mapping[str, int] = {}
        """Ids of the control codes, by name."""
        self.target: Tokenizer = target or self
        """The tokenizer of the target language: itself, unless source and target tokenizers differ."""
        self.special_ids = self._resolve_special_ids()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled tokenizer: the library does not pickle `encode_special_tokens`."""
        self.__dict__.update(state)
        self._escaping_backend.encode_special_tokens = True

    def _resolve_special_ids(self) -> SpecialTokenIds:
        ids = {role: self._find_id(getattr(self.special_tokens, role)) for role in SPECIAL_TOKEN_KEYS}
        for role in ("pad", "unk"):
            ids[role] = None if ids[role] == ids["eos"] else ids[role]
        return SpecialTokenIds(**ids)

    def _find_id(self, token: str | None) -> int | None:
        return None if token is None else self._backend.token_to_id(token)

    # -- vocabulary

    def __len__(self) -> int:
        """Size of the vocabulary: the highest id plus one, since published vocabularies may have gaps."""
        if self._size is None:
            self._size = max(self.get_vocab().values(), default=-1) + 1
        return self._size

    def get_vocab(self) -> dict[str, int]:
        """Return all tokens with their ids."""
        return self._backend.get_vocab(with_added_tokens=True)

    def id_to_token(self, token_id: int) -> str:
        """Return the token with this id."""
        token = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            raise self._unknown_id_error(token_id)
        return token

    def token_to_id(self, token: str) -> int:
        """Return the id of a token, spelled as in the vocabulary."""
        token_id = self._find_id(token)
        if token_id is None:
            raise TokenizerError(f"{token!r} is not in the vocabulary{did_you_mean(token, self.get_vocab())}")
        return token_id

    def merge_table(self) -> dict[int, tuple[int, int]]:
        """Return the two tokens that each token was merged from, all by id; empty unless the vocabulary is a BPE.

        Special tokens and added tokens are atomic: they are left out, both as results and as parts of a merge, even
        where the merges could produce them.
        """
        model = json.loads(self._backend.to_str())["model"]
        atomic = {token.content for token in self._backend.get_added_tokens_decoder().values()} | {
            *astuple(self.special_tokens)
        }
        ids = model["vocab"]
        return {
            ids[token]: (ids[left], ids[right])
            for token, (left, right) in read_merge_table(model).items()
            if atomic.isdisjoint((token, left, right))
        }

    # -- text to ids

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        parse_special_tokens: bool = False,
        language: str | None = None,
        control: str | None = None,
    ) -> Encoding:
        """Encode a text, or a pair of texts.

        `add_special_tokens` adds the special tokens that the model expects before and after a text. Special tokens in
        the input text are encoded as plain text, unless `parse_special_tokens` is set. `language` and `control` name a
        language code and a control code, for models that have them (see `languages`, `control_codes`).
        """
        pairs = None if pair is None else [pair]
        return self.encode_batch(
            [text],
            pairs,
            add_special_tokens=add_special_tokens,
            parse_special_tokens=parse_special_tokens,
            language=language,
            control=control,
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        parse_special_tokens: bool = False,
        language: str | None = None,
        control: str | None = None,
    ) -> list[Encoding]:
        """Encode many texts, or pairs of texts, on all cores. The options are those of `encode`."""
        language_id, control_id = self._language_id(language), self._control_code_id(control)
        if isinstance(texts, str):
            raise TokenizerError("expected a list of texts, got one str: pass [text], or call encode()")
        if pairs is not None and len(pairs) != len(texts):
            raise TokenizerError(f"texts and pairs differ in length: {len(texts)} and {len(pairs)}")
        encodings = self._encode_batch(texts, pairs, add_special_tokens, parse_special_tokens)
        return [self._apply_codes(encoding, language_id, control_id) for encoding in encodings]

    def encode_batch_ids(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        language: str | None = None,
        control: str | None = None,
    ) -> list[list[int]]:
        """Return only the ids of many texts: those of `encode_batch`, without the cost of computing offsets."""
        if language is not None or control is not None:
            encodings = self.encode_batch(
                texts, add_special_tokens=add_special_tokens, language=language, control=control
            )
            return [encoding.ids for encoding in encodings]
        return self._encode_batch_ids(texts, add_special_tokens)

    def _encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[Encoding]:
        backend = self._get_parsing_backend() if parse_special_tokens else self._escaping_backend
        batch: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        try:
            with backend_errors("encode this text"):
                encodings = [
                    encoding
                    for group in _groups(batch)
                    for encoding in backend.encode_batch(group, add_special_tokens=add_special_tokens)
                ]
        except (TypeError, UnicodeEncodeError):
            raise _invalid_text_error([*texts, *(pairs or ())]) from None
        return [_from_backend_encoding(encoding) for encoding in encodings]

    def _encode_batch_ids(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        try:
            encode = self._escaping_backend.encode_batch_fast
            with backend_errors("encode this text"):
                return [
                    encoding.ids
                    for group in _groups(list(texts))
                    for encoding in encode(group, add_special_tokens=add_special_tokens)
                ]
        except (TypeError, UnicodeEncodeError):
            raise _invalid_text_error(texts) from None

    def _get_parsing_backend(self) -> tokenizers.Tokenizer:
        """Return a backend that parses special tokens in the input text: a copy, since threads share the other one."""
        if self._parsing_backend is None:
            backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
            backend.encode_special_tokens = False
            self._parsing_backend = backend
        return self._parsing_backend

    def _language_id(self, name: str | None) -> int | None:
        return None if name is None else _lookup_code(name, self.languages, "language")

    def _control_code_id(self, name: str | None) -> int | None:
        return None if name is None else _lookup_code(name, self.control_codes, "control code")

    def _apply_codes(self, encoding: Encoding, language_id: int | None, control_id: int | None) -> Encoding:
        """Replace the default language code with another one, and prepend a control code."""
        if language_id is not None:
            default_id = self.languages[self._default_language] if self._default_language else None
            for index, (token_id, added) in enumerate(zip(encoding.ids, encoding.special_tokens_mask, strict=True)):
                if added and token_id == default_id:
                    encoding.ids[index], encoding.tokens[index] = language_id, self.id_to_token(language_id)
        return encoding if control_id is None else _prepend_token(control_id, self.id_to_token(control_id), encoding)

    # -- ids to text

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Decode ids to text: the inverse of `encode` wherever the vocabulary allows it."""
        return self.decode_batch([ids], skip_special_tokens=skip_special_tokens)[0]

    def decode_batch(self, sequences: Iterable[Iterable[int]], *, skip_special_tokens: bool = True) -> list[str]:
        """Decode many sequences of ids to texts."""
        id_lists = [[int(token_id) for token_id in sequence] for sequence in sequences]
        self._check_ids(id_lists)
        return self._decode_batch(id_lists, skip_special_tokens)

    def _check_ids(self, id_lists: list[list[int]]) -> None:
        lowest, highest = min(map(_min_id, id_lists), default=0), max(map(_max_id, id_lists), default=0)
        if lowest < 0 or (highest > 0 and highest >= len(self)):
            raise self._unknown_id_error(lowest if lowest < 0 else highest)

    def _unknown_id_error(self, token_id: int) -> TokenizerError:
        return TokenizerError(f"no token has id {token_id}: the vocabulary has ids 0 to {len(self) - 1}")

    def _decode_batch(self, id_lists: list[list[int]], skip_special_tokens: bool) -> list[str]:
        with backend_errors("decode these tokens"):
            return self._backend.decode_batch(id_lists, skip_special_tokens=skip_special_tokens)

    # -- to disk

    def files(self) -> dict[str, bytes]:
        """Return name and content of the files of this tokenizer: a fast tokenizer that transformers opens too."""
        values: dict[str, Any] = {
            SPECIAL_TOKEN_KEYS[role.name]: getattr(self.special_tokens, role.name)
            for role in fields(self.special_tokens)
        }
        values |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        if self.model_max_length is not None:
            values["model_max_length"] = self.model_max_length
        if self.family is not None:
            values["regard_family"] = self.family
        values = {key: value for key, value in values.items() if value is not None}
        return {
            "tokenizer.json": (_to_exact_json(self._backend) + "\n").encode(),
            "tokenizer_config.json": format_json(values).encode(),
        }

    def fingerprint(self) -> str:
        """Return a hash of this tokenizer: tokenizers that encode differently have different fingerprints."""
        digest = hashlib.sha256()
        for tokenizer in (self, self.target) if self.target is not self else (self,):
            for name, content in tokenizer.files().items():
                digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder, and a separate target tokenizer to its subfolder `target`."""
        write_files(Path(folder), self.folder_files())

    def folder_files(self) -> dict[str, bytes]:
        """Return name and content of the files that `save` writes, those of a separate target tokenizer included."""
        target = {} if self.target is self else self.target.files()
        return {**self.files(), **{f"target/{name}": content for name, content in target.items()}}

    def with_target(self, target: Tokenizer) -> Tokenizer:
        """Return the same tokenizer with another one for the target language."""
        return Tokenizer(
            self._backend,
            self.special_tokens,
            family=self.family,
            model_max_length=self.model_max_length,
            truncation_length=self.truncation_length,
            languages=self.languages,
            default_language=self._default_language,
            target=target,
        )


def _to_exact_json(backend: tokenizers.Tokenizer) -> str:
    """Serialize the backend to JSON that is parsed back to the same numbers.

    The library's parser rounds long decimal fractions, so that the scores of a unigram vocabulary would change with
    every copy. It parses fifteen digits exactly.
    """
    if not isinstance(backend.model, tokenizers.models.Unigram):
        return backend.to_str(pretty=True)
    data = json.loads(backend.to_str())
    data["model"]["vocab"] = [[token, float(f"{score:.15g}")] for token, score in data["model"]["vocab"]]
    return json.dumps(data, indent=2, ensure_ascii=False)


def _from_backend_encoding(encoding: tokenizers.Encoding) -> Encoding:
    return Encoding(
        ids=encoding.ids,
        tokens=encoding.tokens,
        offsets=encoding.offsets,
        segments=encoding.type_ids,
        special_tokens_mask=[flag == 1 for flag in encoding.special_tokens_mask],
        sequence_ids=encoding.sequence_ids,
    )


def _prepend_token(token_id: int, token: str, encoding: Encoding) -> Encoding:
    return Encoding(
        ids=[token_id, *encoding.ids],
        tokens=[token, *encoding.tokens],
        offsets=[(0, 0), *encoding.offsets],
        segments=[0, *encoding.segments],
        special_tokens_mask=[True, *encoding.special_tokens_mask],
        sequence_ids=[None, *encoding.sequence_ids],
    )


def _invalid_text_error(texts: Iterable[object]) -> TokenizerError:
    """Build an error that names the invalid text, which the library's own error does not."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            return TokenizerError(f"text {index}: expected str, got {type(text).__name__}")
        for position, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                return TokenizerError(
                    f"text {index}, character {position}: unpaired surrogate U+{ord(character):04X}. "
                    "Was the text read with errors='surrogateescape'?"
                )
    return TokenizerError("the texts cannot be encoded as UTF-8")


def _lookup_code(name: str, codes: Mapping[str, int], kind: str) -> int:
    if not codes:
        raise TokenizerError(f"{kind} {name!r}: this tokenizer has no {kind.removesuffix(' code')} codes")
    if name not in codes:
        raise TokenizerError(f"unknown {kind} {name!r}{did_you_mean(name, codes)}; available: {', '.join(codes)}")
    return codes[name]


def _min_id(ids: list[int]) -> int:
    return min(ids, default=0)


def _max_id(ids: list[int]) -> int:
    return max(ids, default=0)


def _groups(texts: list[Any]) -> Iterator[list[Any]]:
    """Split a batch into groups that are encoded in a fraction of a second: Ctrl-C waits for the end of a call."""
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text) if isinstance(text, str) else sum(map(len, text))
        if size > GROUP_CHARACTERS:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]
