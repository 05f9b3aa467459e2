"""Logits processors: functions that mask or rescale the logits of the next token.

A processor takes the logits, one row for each sequence, and the sequences. It returns new logits and may overwrite the
given ones, which saves memory. A logit of -inf masks a token. Processors are applied in the given order; a beam search
applies them to log-probabilities. The processors that published generation configs use compute the same as those of
transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.generation.sequence import TokenSequence

Logits = Float[Tensor, "batch vocabulary"]
LogitsProcessor = Callable[[Logits, Sequence[TokenSequence]], Logits]


class MaskingProcessor:
    """Base class of processors that only mask tokens, in place.

    A masking processor leaves all other logits unchanged and masks the same tokens in logits as in log-probabilities.
    So no copy of the logits is needed before it, and upper bounds of the logits stay valid.
    """


def only_masks(processors: Sequence[LogitsProcessor]) -> bool:
    """Return whether all processors are masking processors."""
    return all(isinstance(processor, MaskingProcessor) for processor in processors)


def apply_processors(
    processors: Sequence[LogitsProcessor], logits: Logits, sequences: Sequence[TokenSequence]
) -> Logits:
    """Apply all processors in order. The given logits may be overwritten."""
    for processor in processors:
        logits = processor(logits, sequences)
    return logits


@dataclass(frozen=True)
class Temperature:
    """Softmax temperature: below 1 the distribution becomes sharper, above 1 flatter."""

    temperature: float

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"temperature must be greater than 0, found {self.temperature}; for greedy search use GreedySearch()"
            )

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Divide by the temperature."""
        del sequences
        return logits.div_(self.temperature)


@dataclass(frozen=True)
class TopK(MaskingProcessor):
    """Top-k filtering: keep the `k` most likely tokens, and those that tie with the last of them."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top_k must be at least 1, found {self.k}")

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the other tokens."""
        del sequences
        threshold = logits.topk(min(self.k, logits.shape[1])).values[:, -1:]
        return logits.masked_fill_(logits < threshold, -torch.inf)


@dataclass(frozen=True)
class TopP(MaskingProcessor):
    """Nucleus filtering: keep the most likely tokens whose probabilities add up to `p` (Holtzman et al. 2019)."""

    p: float

    def __post_init__(self) -> None:
        _check_probability("top_p", self.p)

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the tail of the distribution, but never the most likely token."""
        del sequences
        ascending, order = logits.sort(dim=-1)
        tail = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - self.p
        tail[:, -1] = False
        return logits.masked_fill_(torch.zeros_like(tail).scatter(1, order, tail), -torch.inf)


@dataclass(frozen=True)
class MinP(MaskingProcessor):
    """Min-p filtering: keep tokens that are at least `p` times as likely as the most likely one."""

    p: float

    def __post_init__(self) -> None:
        _check_probability("min_p", self.p)

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the other tokens."""
        del sequences
        probabilities = logits.softmax(dim=-1)
        return logits.masked_fill_(probabilities < self.p * probabilities.amax(dim=-1, keepdim=True), -torch.inf)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, found {value}")


@dataclass(frozen=True)
class RepetitionPenalty:
    """Make tokens that the sequence already has less likely (Keskar et al. 2019); below 1, more likely."""

    penalty: float

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise ValueError(f"repetition_penalty must be greater than 0, found {self.penalty}")

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Divide positive logits and multiply negative ones; tokens of the prompt count too."""
        used = [(row, token) for row, sequence in enumerate(sequences) for token in set(sequence.tokens)]
        indices = torch.tensor([pair for pair in used if pair[1] < logits.shape[1]], device=logits.device).T
        scores = logits[indices[0], indices[1]]
        scores = torch.where(scores < 0, scores * self.penalty, scores / self.penalty)
        return logits.index_put_((indices[0], indices[1]), scores)


@dataclass(frozen=True)
class NoRepeatNgram(MaskingProcessor):
    """Allow no n-gram of `ngram_size` tokens to occur twice; those of the prompt count too."""

    ngram_size: int

    def __post_init__(self) -> None:
        if self.ngram_size < 1:
            raise ValueError(f"no_repeat_ngram_size must be at least 1, found {self.ngram_size}")

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the tokens that followed the last `ngram_size` - 1 tokens earlier in the sequence."""
        return _mask_tokens(logits, [self._repeated(sequence.tokens) for sequence in sequences])

    def _repeated(self, tokens: list[int]) -> list[int]:
        context = self.ngram_size - 1
        tail = tokens[len(tokens) - context :]
        return [tokens[end] for end in range(context, len(tokens)) if tokens[end - context : end] == tail]


@dataclass(frozen=True)
class SuppressSequences(MaskingProcessor):
    """Never generate these token sequences; a sequence may have a single token."""

    sequences: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise ValueError("a suppressed sequence must have at least one token")

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the last token of each suppressed sequence whose other tokens have just been generated."""
        for suppressed in self.sequences:
            if not all(0 <= token < logits.shape[1] for token in suppressed):
                raise ValueError(
                    f"suppressed sequence {list(suppressed)} has a token id outside the vocabulary of "
                    f"{logits.shape[1]} tokens"
                )
        return _mask_tokens(logits, [self._completing_tokens(sequence.tokens) for sequence in sequences])

    def _completing_tokens(self, tokens: list[int]) -> list[int]:
        """Return the tokens that would complete a suppressed sequence."""
        return [suppressed[-1] for suppressed in self.sequences if _ends_with(tokens, suppressed[:-1])]


def _ends_with(tokens: list[int], suffix: Sequence[int]) -> bool:
    return len(tokens) >= len(suffix) and tokens[len(tokens) - len(suffix) :] == list(suffix)


@dataclass(frozen=True)
class MinNewTokens(MaskingProcessor):
    """Allow an EOS token only after `min_new_tokens` other new tokens."""

    min_new_tokens: int
    eos_token_ids: Sequence[int]

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask the EOS tokens of sequences that are still too short."""
        return _mask_tokens(
            logits, [self.eos_token_ids if each.num_new_tokens < self.min_new_tokens else () for each in sequences]
        )


@dataclass(frozen=True)
class ForcedPrefix:
    """Force the first new tokens: mBART's language code, or a prefix of the target."""

    tokens: Sequence[int]

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask all other tokens at the positions of the prefix."""
        forced = {
            row: self.tokens[sequence.num_new_tokens]
            for row, sequence in enumerate(sequences)
            if sequence.num_new_tokens < len(self.tokens)
        }
        return _force_tokens(logits, forced)


@dataclass(frozen=True)
class ForcedEos:
    """Force the EOS token at the maximum length, as BART's generation config does."""

    eos_token_id: int

    def __call__(self, logits: Logits, sequences: Sequence[TokenSequence]) -> Logits:
        """Mask all other tokens at the last position."""
        return _force_tokens(
            logits,
            {
                row: self.eos_token_id
                for row, sequence in enumerate(sequences)
                if sequence.num_new_tokens == sequence.max_new_tokens - 1
            },
        )


def _mask_tokens(logits: Logits, tokens: Sequence[Sequence[int]]) -> Logits:
    """Mask the given tokens of each row."""
    if len(tokens[0]) == 1 and tokens.count(tokens[0]) == len(tokens):
        logits[:, tokens[0][0]] = -torch.inf
        return logits
    pairs = [(row, token) for row, masked in enumerate(tokens) for token in masked]
    if not pairs:
        return logits
    indices = torch.tensor(pairs, device=logits.device).T
    return logits.index_put_((indices[0], indices[1]), logits.new_tensor(-torch.inf))


def _force_tokens(logits: Logits, tokens: dict[int, int]) -> Logits:
    """Mask everything but one token in the given rows; the logit of that token becomes 0."""
    if not tokens:
        return logits
    for token in set(tokens.values()):
        if not 0 <= token < logits.shape[1]:
            raise ValueError(f"forced token id {token} is outside the vocabulary of {logits.shape[1]} tokens")
    rows = torch.tensor(list(tokens), device=logits.device)
    logits.index_fill_(0, rows, -torch.inf)
    logits[rows, torch.tensor(list(tokens.values()), device=logits.device)] = 0
    return logits
