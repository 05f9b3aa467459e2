"""Train a vocabulary from files or texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers

from regard.tokenization import vocab_files
from regard.tokenization.algorithms import ByteBPE, Kind
from regard.tokenization.io import TokenizerError
from regard.tokenization.line_sample import Sample, sample
from regard.tokenization.spinner import Steps
from regard.tokenization.text_files import lines
from regard.tokenization.tokenizer import Names, Tokenizer
from regard.tokenization.vocab_trainers import learnt

LIMIT = 200 * 10**6
"""The bytes of text that are looked at, unless asked otherwise: more hardly changes a vocabulary."""


def train(
    kind: Kind,
    files: Sequence[Path] | Iterable[str],
    *,
    special: Names | None = None,
    extra: Sequence[str] = (),
    seed: int = 0,
    limit_bytes: int = LIMIT,
    progress: bool = False,
) -> Tokenizer:
    """Train a vocabulary from text files (also compressed: .gz, .xz, .zst), or from any texts.

        train(ByteBPE(size=8000), [Path("train.en"), Path("train.de")])     # one vocabulary for both sides
        train(Words(size=20000), ["one text", "another"])

    Paths are read line by line; strings are texts. `special` names the special tokens (each kind has its usual ones),
    `extra` further tokens that are never cut. The same texts and seed give the same vocabulary, byte for byte.

    Memory stays bounded: of texts with more than `limit_bytes` a fair sample is taken, and standard error says so.
    """
    names = special or kind.names
    check(kind, names, extra)
    steps = Steps(progress)
    with steps.doing("reading"):
        taken = sample(_texts(files, steps), limit_bytes, seed)
    if not any(text.strip() for text in taken.texts):
        raise TokenizerError("there is no text to learn a vocabulary from: all lines are empty")
    if not taken.whole:
        sys.stderr.write(_said(taken, limit_bytes))
    with steps.doing(f"learning {kind.size:,} tokens from {len(taken.texts):,} lines"):
        core = learnt(kind, taken.texts, _special(names, extra), names.unknown)
    _around(core, names)
    return Tokenizer(core, names)


def _texts(files: Sequence[Path] | Iterable[str], steps: Steps) -> Iterator[str]:
    for item in files:
        if isinstance(item, Path):
            for _, line in lines(item):
                steps.advance()
                yield line
        else:
            steps.advance()
            yield item


def _special(names: Names, extra: Sequence[str]) -> list[str]:
    roles = (names.padding, names.unknown, names.begin, names.end, names.classify, names.separator, names.mask)
    return list(dict.fromkeys([*(name for name in roles if name is not None), *extra]))


def check(kind: Kind, names: Names, extra: Sequence[str] = ()) -> None:
    """Stop if no vocabulary can be of this kind, with these special tokens."""
    if kind.size < 1:
        raise TokenizerError(f"a vocabulary of {kind.size} tokens cannot be trained: expected 1 or more")
    if names.padding is not None and names.padding in (names.end, names.begin):
        raise TokenizerError(f"padding and the end of a text are both {names.padding!r}: give padding its own token")
    if names.unknown is None and not isinstance(kind, ByteBPE):
        raise TokenizerError(f"{type(kind).__name__} needs a token for what is unknown: special=Names(unknown=…)")
    always = len(_special(names, extra)) + (256 if isinstance(kind, ByteBPE) else 0)
    if kind.size < always + 2:
        what = "the special tokens and the 256 bytes" if isinstance(kind, ByteBPE) else "the special tokens"
        raise TokenizerError(f"a vocabulary of {kind.size} tokens is too small: {what} alone are {always}")


def _said(taken: Sample, limit: int) -> str:
    return (
        f"the texts have {taken.bytes / 1e6:,.1f} MB: the vocabulary is learnt from a sample of "
        f"{taken.kept_bytes / 1e6:,.1f} MB, {len(taken.texts):,} of {taken.lines:,} lines (limit_bytes={limit:,})\n"
    )


def _around(core: tokenizers.Tokenizer, names: Names) -> None:
    """What is added around a text: `[CLS] … [SEP]` where there are such tokens, otherwise the end of the text."""
    if names.classify is not None and names.separator is not None:
        first, last = f"{names.classify}:0", names.separator
        core.post_processor = vocab_files.template(
            core, f"{first} $A:0 {last}:0", f"{first} $A:0 {last}:0 $B:1 {last}:1"
        )
    elif names.end is not None:
        core.post_processor = vocab_files.template(
            core, f"$A:0 {names.end}:0", f"$A:0 {names.end}:0 $B:1 {names.end}:1"
        )
