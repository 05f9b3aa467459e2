"""CTRL's tokenizer: byte-pair encoding of words; a token that does not end its word is marked with `@@`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from regard.files import read_text
from regard.tokenization.io import TokenizerError
from regard.tokenization.remapped_tokenizer import RemappedTokenizer
from regard.tokenization.special_tokens import TokenizerConfig, token_content
from regard.tokenization.tokenizer import Encoding, SpecialTokens
from regard.tokenization.vocab_files import read_vocab

_CONTROL_CODES = (
    "Pregnancy Christianity Explain Fitness Saving Ask Ass Joke Questions Thoughts Retail Feminism Writing Atheism "
    "Netflix Computing Opinion Alone Funny Gaming Human India Joker Diet Legal Norman Tip Weight Movies Running "
    "Science Horror Confession Finance Politics Scary Support Technologies Teenage Event Learned Notion Wikipedia "
    "Books Extract Confessions Conspiracy Links Narcissus Relationship Relationships Reviews News Translation "
    "multilingual"
)
CONTROL_CODES = _CONTROL_CODES.split()
"""Control codes: the words at the start of a text that select its style and domain."""

END_OF_WORD = "</w>"


class CTRLTokenizer(RemappedTokenizer):
    """CTRL's tokenizer. Control codes are ordinary words; `encode(text, control="Reviews")` prepends one."""

    def _encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool, parse_special_tokens: bool
    ) -> list[Encoding]:
        encodings = super()._encode_batch(texts, pairs, add_special_tokens, parse_special_tokens)
        for encoding in encodings:
            for index, backend_id in enumerate(encoding.ids):
                encoding.ids[index] = self._id_map[backend_id]
                encoding.tokens[index] = self.id_to_token(encoding.ids[index])
        return encodings

    def _encode_batch_ids(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        id_map = self._id_map
        return [
            [id_map[backend_id] for backend_id in ids] for ids in super()._encode_batch_ids(texts, add_special_tokens)
        ]

    def _decode_batch(self, id_lists: list[list[int]], skip_special_tokens: bool) -> list[str]:
        skipped = (self.special_ids.unk,) if skip_special_tokens else ()
        token_lists = [[self.id_to_token(token_id) for token_id in ids if token_id not in skipped] for ids in id_lists]
        return [" ".join(tokens).replace("@@ ", "").strip() for tokens in token_lists]


def load_ctrl_tokenizer(
    vocab_path: Path, merges_path: Path, config: TokenizerConfig, model_max_length: int | None
) -> CTRLTokenizer:
    """Load a CTRL tokenizer from its vocabulary and merges files."""
    vocab, merges = read_vocab(vocab_path), _read_merges(merges_path)
    unk = token_content(config.get("unk_token", "<unk>"))
    if unk not in vocab:
        raise TokenizerError(f"{vocab_path}: the unknown token {unk!r} is missing; every CTRL vocabulary has one")
    backend_vocab = _backend_vocab(vocab, merges, unk)
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=backend_vocab, merges=merges, unk_token=unk, end_of_word_suffix=END_OF_WORD, fuse_unk=False)
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), behavior="removed", invert=True)
    backend.add_special_tokens([unk])
    names = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    paths = {name: vocab_path.with_name(name) for name in names} | {"vocab.json": vocab_path, "merges.txt": merges_path}
    result = CTRLTokenizer(
        backend,
        SpecialTokens(unk=unk),
        vocab=vocab,
        id_map=[vocab.get(_published_token(piece), vocab[unk]) for piece in backend_vocab],
        files={name: path.read_bytes() for name, path in paths.items() if path.is_file()},
        tokenizer_class="CTRLTokenizer",
        family="ctrl",
        model_max_length=model_max_length,
    )
    result.control_codes = {code: vocab[code] for code in CONTROL_CODES if code in vocab}
    return result


def _read_merges(path: Path) -> list[tuple[str, str]]:
    """Read the merges in order. The first line is a header; lines that are not a pair are ignored."""
    lines = [line.split() for line in read_text(path, TokenizerError).split("\n")[1:]]
    return [(fields[0], fields[1]) for fields in lines if len(fields) == 2]


def _backend_vocab(vocab: dict[str, int], merges: list[tuple[str, str]], unk: str) -> dict[str, int]:
    """Return the backend's vocabulary, in which the last token of a word ends in `</w>`.

    It has ids of its own, because the published vocabulary lacks some intermediate merge results.
    """
    alphabet = [piece for token in vocab for piece in _alphabet_pieces(token)]
    merged = [piece for left, right in merges for piece in (left, right, left + right)]
    return {piece: index for index, piece in enumerate(dict.fromkeys([unk, *alphabet, *merged]))}


def _alphabet_pieces(token: str) -> list[str]:
    """Return the backend spelling of a token of one character: at the end of a word, or before it."""
    pieces = [token + END_OF_WORD] if len(token) == 1 else []
    return [*pieces, token[:-2]] if len(token) == 3 and token.endswith("@@") else pieces


def _published_token(piece: str) -> str:
    """Return the spelling of a backend piece in the published vocabulary."""
    return piece.removesuffix(END_OF_WORD) if piece.endswith(END_OF_WORD) or piece == "<unk>" else f"{piece}@@"
