"""CTRL: words cut by byte-pair encoding; a piece that does not end its word is written with `@@`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from regard.tokenization.io import TokenizerError, read_text
from regard.tokenization.remapped_tokenizer import Renumbered
from regard.tokenization.special_tokens import Theirs, content
from regard.tokenization.tokenizer import Encoded, Names
from regard.tokenization.vocab_files import read_vocabulary

_CONTROLS = (
    "Pregnancy Christianity Explain Fitness Saving Ask Ass Joke Questions Thoughts Retail Feminism Writing Atheism "
    "Netflix Computing Opinion Alone Funny Gaming Human India Joker Diet Legal Norman Tip Weight Movies Running "
    "Science Horror Confession Finance Politics Scary Support Technologies Teenage Event Learned Notion Wikipedia "
    "Books Extract Confessions Conspiracy Links Narcissus Relationship Relationships Reviews News Translation "
    "multilingual"
)
CONTROLS = _CONTROLS.split()
"""The words that a text for CTRL may begin with: they say what kind of text it is."""

END = "</w>"


class CTRL(Renumbered):
    """CTRL's tokenizer. Its control codes are ordinary words: `encode(text, control="Reviews")` puts one first."""

    def _rows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, special_tokens: bool, read_special: bool
    ) -> list[Encoded]:
        rows = super()._rows(texts, pairs, special_tokens, read_special)
        for row in rows:
            for place, number in enumerate(row.ids):
                row.ids[place] = self._numbers[number]
                row.tokens[place] = self.token(row.ids[place])
        return rows

    def _ids(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        numbers = self._numbers
        return [[numbers[number] for number in row] for row in super()._ids(texts, special_tokens)]

    def _texts(self, rows: list[list[int]], keep_special: bool) -> list[str]:
        dropped = () if keep_special else (self.special.unknown,)
        kept = [[self.token(number) for number in row if number not in dropped] for row in rows]
        return [" ".join(tokens).replace("@@ ", "").strip() for tokens in kept]


def load(vocabulary: Path, merges: Path, theirs: Theirs, longest: int | None) -> CTRL:
    """Read the two files of a CTRL vocabulary."""
    ids, pairs = read_vocabulary(vocabulary), _merges(merges)
    unknown = content(theirs.get("unk_token", "<unk>"))
    if unknown not in ids:
        raise TokenizerError(f"{vocabulary}: there is no {unknown} in it, which every CTRL vocabulary has")
    inner = _inner(ids, pairs, unknown)
    core = tokenizers.Tokenizer(
        models.BPE(vocab=inner, merges=pairs, unk_token=unknown, end_of_word_suffix=END, fuse_unk=False)
    )
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S+\n?"), behavior="removed", invert=True)
    core.add_special_tokens([unknown])
    numbers = [ids.get(_written(piece), ids[unknown]) for piece in inner]
    names = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    files = {name: vocabulary.with_name(name) for name in names} | {"vocab.json": vocabulary, "merges.txt": merges}
    result = CTRL(
        core,
        Names(unknown=unknown),
        ids=ids,
        numbers=numbers,
        files={name: path.read_bytes() for name, path in files.items() if path.is_file()},
        tokenizer_class="CTRLTokenizer",
        family="ctrl",
        longest=longest,
    )
    result.controls = {name: ids[name] for name in CONTROLS if name in ids}
    return result


def _merges(path: Path) -> list[tuple[str, str]]:
    """Pairs in the order of joining. The first line is a header, and a line that is no pair joins nothing."""
    lines = [line.split() for line in read_text(path).split("\n")[1:]]
    return [(words[0], words[1]) for words in lines if len(words) == 2]


def _inner(ids: dict[str, int], pairs: list[tuple[str, str]], unknown: str) -> dict[str, int]:
    """The pieces that joining works with, in the way of byte-pair encoding: the last of a word ends in `</w>`.

    The published vocabulary lacks some that are only met on the way, so these have numbers of their own.
    """
    letters = [piece for token in ids for piece in _letters(token)]
    joined = [piece for left, right in pairs for piece in (left, right, left + right)]
    return {piece: number for number, piece in enumerate(dict.fromkeys([unknown, *letters, *joined]))}


def _letters(token: str) -> list[str]:
    """A token of one character as joining sees it: at the end of a word, or before."""
    found = [token + END] if len(token) == 1 else []
    return [*found, token[:-2]] if len(token) == 3 and token.endswith("@@") else found


def _written(piece: str) -> str:
    """A piece as the published vocabulary writes it."""
    return piece.removesuffix(END) if piece.endswith(END) or piece == "<unk>" else f"{piece}@@"
