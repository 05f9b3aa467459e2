"""Marian's tokenizer: SentencePiece models for source and target, and a `vocab.json` with the ids of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers
from tokenizers import models

from regard.tokenization.backend_check import backend_errors
from regard.tokenization.io import TokenizerError
from regard.tokenization.remapped_tokenizer import RemappedTokenizer
from regard.tokenization.sentencepiece_model import ModelType, PieceType, SentencePieceModel, read_sentencepiece_model
from regard.tokenization.sentencepiece_normalizer import SentencePieceNormalizer
from regard.tokenization.special_tokens import TokenizerConfig, token_content
from regard.tokenization.tokenizer import Encoding, SpecialTokens
from regard.tokenization.vocab_files import read_vocab

LANGUAGE_CODE = re.compile(r">>.*?<<", re.DOTALL)
MARIAN_FILES = (
    "source.spm",
    "target.spm",
    "vocab.json",
    "target_vocab.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)


class MarianTokenizer(RemappedTokenizer):
    """The source or the target tokenizer of a Marian model.

    A text may start with a language code, as in `>>fr<< Good morning.`, which selects the target language. It is always
    parsed. `encode(text, language="fr")` is equivalent.
    """

    _normalizer: SentencePieceNormalizer
    _unk_piece_id: int

    def _encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[Encoding]:
        inputs: Iterable[Sequence[str]] = zip(texts) if pairs is None else zip(texts, pairs, strict=False)
        return [self._encode_one(sequences, add_special_tokens, parse_special_tokens) for sequences in inputs]

    def _encode_one(self, texts: Sequence[str], add_special_tokens: bool, parse_special_tokens: bool) -> Encoding:
        result = Encoding([], [], [], [], [], [])
        for sequence_id, text in enumerate(texts):
            for start, part, token_id in self._split_special_tokens(text, parse_special_tokens):
                if token_id is not None:
                    _append_token(result, token_id, part, (start, start + len(part)), sequence_id)
                    continue
                normalized, starts, ends = self._normalizer.normalize_with_offsets(part)
                with backend_errors("encode this text"):
                    encoding = self._backend.encode(normalized, add_special_tokens=False)
                for piece_id, surface, (first, last) in zip(
                    encoding.ids, encoding.tokens, encoding.offsets, strict=True
                ):
                    offsets = (start + starts[first], start + ends[last - 1])
                    published_id = self._published_id(piece_id, normalized[first:last])
                    token = surface if piece_id == self._unk_piece_id else self.id_to_token(published_id)
                    _append_token(result, published_id, token, offsets, sequence_id)
        if add_special_tokens and self.special_ids.eos is not None:
            _append_token(result, self.special_ids.eos, self.id_to_token(self.special_ids.eos), (0, 0), None)
        return result

    def _encode_batch_ids(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        eos = [self.special_ids.eos] if add_special_tokens and self.special_ids.eos is not None else []
        split_texts = [list(self._split_special_tokens(text, False)) for text in texts]
        normalized = [
            self._normalizer.normalize(part) for parts in split_texts for _, part, token_id in parts if token_id is None
        ]
        with backend_errors("encode this text"):
            encodings = iter(self._backend.encode_batch(normalized, add_special_tokens=False))
        id_lists = []
        for parts in split_texts:
            ids: list[int] = []
            for _, _, token_id in parts:
                ids += [token_id] if token_id is not None else self._to_published_ids(next(encodings))
            id_lists.append(ids + eos)
        return id_lists

    def _to_published_ids(self, encoding: tokenizers.Encoding) -> list[int]:
        if self._unk_piece_id not in encoding.ids:
            return [self._id_map[piece_id] for piece_id in encoding.ids]
        return [
            self._published_id(piece_id, text) for piece_id, text in zip(encoding.ids, encoding.tokens, strict=True)
        ]

    def _published_id(self, piece_id: int, surface: str) -> int:
        """Return the published id of a piece. The vocabulary may contain text that the SentencePiece model does not."""
        if piece_id == self._unk_piece_id:
            return self._vocab.get(surface, self._id_map[piece_id])
        return self._id_map[piece_id]

    def _split_special_tokens(self, text: str, parse_special_tokens: bool) -> Iterator[tuple[int, str, int | None]]:
        """Split a text at its special tokens: yield start, text and, for a special token, the id of each part."""
        if not isinstance(text, str):
            raise TokenizerError(f"expected str, got {type(text).__name__}")
        roles = (self.special_tokens.eos, self.special_tokens.unk, self.special_tokens.pad)
        tokens = sorted(filter(None, roles), key=len, reverse=True) if parse_special_tokens else []
        pattern = "|".join(re.escape(token) for token in tokens)
        spans = [match.span() for match in re.finditer(pattern, text)] if pattern else []
        start = 0
        for first, last in [*spans, (len(text), len(text))]:
            yield from self._split_language_code(start, text[start:first])
            if last > first:
                yield first, text[first:last], self._vocab[text[first:last]]
            start = last

    def _split_language_code(self, start: int, text: str) -> Iterator[tuple[int, str, int | None]]:
        code = LANGUAGE_CODE.match(text)
        if code:
            unk = self.special_ids.unk
            yield start, code[0], self._vocab.get(code[0], unk if unk is not None else 0)
            start, text = start + code.end(), text[code.end() :]
        if text:
            yield start, text, None

    def _apply_codes(self, encoding: Encoding, language_id: int | None, control_id: int | None) -> Encoding:
        return super()._apply_codes(encoding, None, language_id if language_id is not None else control_id)

    def _decode_batch(self, id_lists: list[list[int]], skip_special_tokens: bool) -> list[str]:
        special = {self.special_ids.eos, self.special_ids.unk, self.special_ids.pad} - {None}
        if skip_special_tokens:
            id_lists = [[token_id for token_id in ids if token_id not in special] for ids in id_lists]
        return ["".join(self._join_pieces(ids, special)).replace("▁", " ").strip() for ids in id_lists]

    def _join_pieces(self, ids: list[int], special: set[int | None]) -> Iterator[str]:
        """Yield the pieces, the first of each run without its leading ▁, and special tokens with a trailing space."""
        at_start = True
        for token_id in ids:
            token = self.id_to_token(token_id)
            yield f"{token} " if token_id in special else token.removeprefix("▁") if at_start else token
            at_start = token_id in special


def _append_token(
    encoding: Encoding, token_id: int, token: str, offsets: tuple[int, int], sequence_id: int | None
) -> None:
    encoding.ids.append(token_id)
    encoding.tokens.append(token)
    encoding.offsets.append(offsets)
    encoding.segments.append(0)
    encoding.special_tokens_mask.append(sequence_id is None)
    encoding.sequence_ids.append(sequence_id)


def load_marian_tokenizer(folder: Path, config: TokenizerConfig, model_max_length: int | None) -> MarianTokenizer:
    """Load the source tokenizer of a Marian model; the target tokenizer is its `.target`."""
    for name in ("source.spm", "target.spm", "vocab.json"):
        if not (folder / name).is_file():
            raise TokenizerError(
                f"{folder}: a Marian tokenizer needs source.spm, target.spm and vocab.json; {name} is missing"
            )
    files = {name: (folder / name).read_bytes() for name in MARIAN_FILES if (folder / name).is_file()}
    vocab = read_vocab(folder / "vocab.json")
    target_vocab = read_vocab(folder / "target_vocab.json") if config.get("separate_vocabs") else vocab
    target = _load_side(folder / "target.spm", target_vocab, files, config, model_max_length or 512, None)
    return _load_side(folder / "source.spm", vocab, files, config, model_max_length or 512, target)


def _load_side(
    path: Path,
    vocab: dict[str, int],
    files: dict[str, bytes],
    config: TokenizerConfig,
    model_max_length: int,
    target: MarianTokenizer | None,
) -> MarianTokenizer:
    special_tokens = SpecialTokens(
        pad=token_content(config.get("pad_token", "<pad>")),
        unk=token_content(config.get("unk_token", "<unk>")),
        eos=token_content(config.get("eos_token", "</s>")),
    )
    if special_tokens.unk not in vocab:
        raise TokenizerError(f"{path.with_name('vocab.json')}: the unknown token {special_tokens.unk} is missing")
    model = read_sentencepiece_model(path)
    result = MarianTokenizer(
        _build_backend(model, path),
        special_tokens,
        vocab=vocab,
        id_map=[vocab.get(piece.text, vocab[special_tokens.unk]) for piece in model.pieces],
        files=files,
        tokenizer_class="MarianTokenizer",
        family="marian",
        model_max_length=model_max_length,
        target=target,
    )
    result._normalizer, result._unk_piece_id = SentencePieceNormalizer(model), model.unk_id
    result.languages = {
        token[2:-2]: token_id for token, token_id in vocab.items() if token.startswith(">>") and token.endswith("<<")
    }
    return result


def _build_backend(model: SentencePieceModel, path: Path) -> tokenizers.Tokenizer:
    """Build the backend from the model's pieces.

    Control and other non-text pieces are renamed with a space, which no normalized text contains, so that they never
    match.
    """
    if model.model_type is not ModelType.UNIGRAM:
        raise TokenizerError(f"{path}: expected a unigram model, found {model.model_type.name.lower()}")
    text_types = (PieceType.NORMAL, PieceType.USER_DEFINED)
    scores = [
        (piece.text if piece.type in text_types else f" {index}", piece.score)
        for index, piece in enumerate(model.pieces)
    ]
    return tokenizers.Tokenizer(models.Unigram(scores, unk_id=model.unk_id, byte_fallback=False))
