"""Train a tokenizer on files or texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import tokenizers

from regard.progress import Progress
from regard.tokenization import vocab_files
from regard.tokenization.algorithms import Algorithm, ByteBPE
from regard.tokenization.io import TokenizerError
from regard.tokenization.line_sample import LineSample, sample_lines
from regard.tokenization.text_files import read_lines
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer
from regard.tokenization.vocab_trainers import train_backend

DEFAULT_LIMIT_BYTES = 200 * 10**6
"""Default size of the training sample: more text hardly changes a vocabulary."""


def train_tokenizer(
    algorithm: Algorithm,
    files: Sequence[Path] | Iterable[str],
    *,
    special_tokens: SpecialTokens | None = None,
    extra_special_tokens: Sequence[str] = (),
    seed: int = 0,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Tokenizer:
    """Train a tokenizer on text files (also compressed: .gz, .xz, .zst), or on any texts.

        train_tokenizer(ByteBPE(size=8000), [Path("train.en"), Path("train.de")])     # one joint vocabulary
        train_tokenizer(WordLevel(size=20000), ["one text", "another"])

    Paths are read line by line; strings are texts. `special_tokens` sets the special tokens by role (each algorithm has
    defaults), and `extra_special_tokens` adds further tokens that are never split. The same texts and seed give the
    same vocabulary, byte for byte.

    Memory is bounded: from texts of more than `limit_bytes` a uniform random sample is taken, with a note on standard
    error.
    """
    special_tokens = special_tokens or algorithm.special_tokens
    check_vocabulary(algorithm, special_tokens, extra_special_tokens)
    with Progress("reading text"):
        sample = sample_lines(_read_texts(files), limit_bytes, seed)
    if not any(text.strip() for text in sample.texts):
        raise TokenizerError("no text to train on: all lines are empty")
    if not sample.complete:
        sys.stderr.write(_sampling_notice(sample, limit_bytes))
    with Progress(f"training a vocabulary of {algorithm.size:,} tokens on {len(sample.texts):,} lines"):
        all_special_tokens = _all_special_tokens(special_tokens, extra_special_tokens)
        backend = train_backend(algorithm, sample.texts, all_special_tokens, special_tokens.unk)
    _set_post_processor(backend, special_tokens)
    return Tokenizer(backend, special_tokens)


def _read_texts(files: Sequence[Path] | Iterable[str]) -> Iterator[str]:
    for item in files:
        if isinstance(item, Path):
            yield from (line for _, line in read_lines(item))
        else:
            yield item


def _all_special_tokens(special_tokens: SpecialTokens, extra: Sequence[str]) -> list[str]:
    roles = (
        special_tokens.pad,
        special_tokens.unk,
        special_tokens.bos,
        special_tokens.eos,
        special_tokens.cls,
        special_tokens.sep,
        special_tokens.mask,
    )
    return list(dict.fromkeys([*(token for token in roles if token is not None), *extra]))


def check_vocabulary(algorithm: Algorithm, special_tokens: SpecialTokens, extra: Sequence[str] = ()) -> None:
    """Raise an error if no vocabulary of this algorithm and size can hold these special tokens."""
    if algorithm.size < 1:
        raise TokenizerError(f"a vocabulary of size={algorithm.size} cannot be trained: expected 1 or more tokens")
    if special_tokens.pad is not None and special_tokens.pad in (special_tokens.eos, special_tokens.bos):
        raise TokenizerError(
            f"the pad token is the bos or eos token ({special_tokens.pad!r}): give padding its own token"
        )
    if special_tokens.unk is None and not isinstance(algorithm, ByteBPE):
        raise TokenizerError(f"{type(algorithm).__name__} needs an unknown token: special_tokens=SpecialTokens(unk=…)")
    reserved = len(_all_special_tokens(special_tokens, extra)) + (256 if isinstance(algorithm, ByteBPE) else 0)
    if algorithm.size < reserved + 2:
        what = "the special tokens and the 256 bytes" if isinstance(algorithm, ByteBPE) else "the special tokens"
        raise TokenizerError(f"a vocabulary of {algorithm.size} tokens is too small: {what} alone are {reserved}")


def _sampling_notice(sample: LineSample, limit_bytes: int) -> str:
    return (
        f"the texts have {sample.total_bytes / 1e6:,.1f} MB: the vocabulary is trained on a sample of "
        f"{sample.sampled_bytes / 1e6:,.1f} MB, {len(sample.texts):,} of {sample.total_lines:,} lines "
        f"(limit_bytes={limit_bytes:,})\n"
    )


def _set_post_processor(backend: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> None:
    """Set the post-processing template: `[CLS] … [SEP]` if there are such tokens, else EOS at the end."""
    if special_tokens.cls is not None and special_tokens.sep is not None:
        cls, sep = special_tokens.cls, special_tokens.sep
        single, pair = f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    elif special_tokens.eos is not None:
        eos = special_tokens.eos
        single, pair = f"$A:0 {eos}:0", f"$A:0 {eos}:0 $B:1 {eos}:1"
    else:
        return
    backend.post_processor = vocab_files.build_template(backend, single, pair)
