"""Each logits processor against its counterpart in transformers, or against its definition if there is none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation import logits_process as theirs
from unit.transformer.small_networks import examples

from regard.generation.logits_processors import (
    ForcedEos,
    ForcedPrefix,
    MaskingProcessor,
    MinNewTokens,
    MinP,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressSequences,
    Temperature,
    TopK,
    TopP,
    apply_processors,
    only_masks,
)
from regard.generation.sequence import TokenSequence

VOCABULARY, PROMPT_LENGTH, MAX_NEW_TOKENS = 9, 2, 6
PAIRS = {
    "temperature": (Temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
    "top-k": (TopK(3), theirs.TopKLogitsWarper(3)),
    "top-k of all": (TopK(50), theirs.TopKLogitsWarper(50)),
    "top-p": (TopP(0.8), theirs.TopPLogitsWarper(0.8)),
    "top-p of almost nothing": (TopP(0.0), theirs.TopPLogitsWarper(0.0)),
    "min-p": (MinP(0.3), theirs.MinPLogitsWarper(0.3)),
    "repetition": (RepetitionPenalty(1.7), theirs.RepetitionPenaltyLogitsProcessor(1.7)),
    "repetition below 1": (RepetitionPenalty(0.5), theirs.RepetitionPenaltyLogitsProcessor(0.5)),
    "no word twice": (NoRepeatNgram(1), theirs.NoRepeatNGramLogitsProcessor(1)),
    "no pair twice": (NoRepeatNgram(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    "no triple twice": (NoRepeatNgram(3), theirs.NoRepeatNGramLogitsProcessor(3)),
    "suppressed": (
        SuppressSequences([[3], [1, 2], [2, 2, 1], [0] * 9]),
        theirs.NoBadWordsLogitsProcessor([[3], [1, 2], [2, 2, 1], [0] * 9]),
    ),
    "minimum": (MinNewTokens(3, [4, 5]), theirs.MinNewTokensLengthLogitsProcessor(PROMPT_LENGTH, 3, [4, 5])),
    "forced EOS": (ForcedEos(5), theirs.ForcedEOSTokenLogitsProcessor(PROMPT_LENGTH + MAX_NEW_TOKENS, 5)),
}


def draw_logits(data, rows):
    """Logits of which some are equal and one is already masked."""
    values = st.sampled_from([-3.0, -1.5, -0.25, 0.0, 0.5, 1.0, 2.5, 4.0])
    lines = data.draw(st.lists(st.lists(values, min_size=9, max_size=9), min_size=rows, max_size=rows))
    logits = torch.tensor(lines, dtype=torch.float64)
    logits += torch.linspace(0, 0.01, VOCABULARY, dtype=torch.float64)  # the order of ties is undefined
    logits[0, 7] = -torch.inf
    return logits


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
@examples(40)
def test_processors_compute_the_same_as_those_of_transformers(name, data):
    ours, theirs_ = PAIRS[name]
    count = data.draw(st.integers(1, 3))
    length = data.draw(st.integers(PROMPT_LENGTH, PROMPT_LENGTH + MAX_NEW_TOKENS - 1))
    words = st.lists(st.integers(0, 3), min_size=length, max_size=length)
    tokens = data.draw(st.lists(words, min_size=count, max_size=count))
    logits = draw_logits(data, count)
    processed = ours(logits.clone(), [TokenSequence(row, PROMPT_LENGTH, MAX_NEW_TOKENS) for row in tokens])
    torch.testing.assert_close(processed, theirs_(torch.tensor(tokens), logits), rtol=0, atol=1e-12)


def test_sequences_of_different_lengths_are_processed_independently():
    sequences = [TokenSequence([1, 2, 1], 1, 9), TokenSequence([2, 1, 2, 1, 3], 1, 5), TokenSequence([7], 1, 9)]
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0))
    processors = [
        RepetitionPenalty(2.0),
        NoRepeatNgram(2),
        SuppressSequences([[2, 1, 8]]),
        MinNewTokens(3, [4]),
        ForcedPrefix([6, 5]),
        ForcedEos(0),
    ]
    batch = apply_processors(processors, logits.clone(), sequences)
    for row, sequence in enumerate(sequences):
        assert torch.equal(
            batch[row : row + 1], apply_processors(processors, logits[row : row + 1].clone(), [sequence])
        )


def test_a_forced_prefix_is_generated_token_by_token():
    processor, logits = ForcedPrefix([6, 5]), torch.zeros(3, VOCABULARY)
    processed = processor(
        logits, [TokenSequence([1], 1, 9), TokenSequence([1, 6], 1, 9), TokenSequence([1, 6, 5], 1, 9)]
    )
    assert processed[0].isfinite().nonzero().flatten().tolist() == [6]
    assert processed[1].isfinite().nonzero().flatten().tolist() == [5]
    assert torch.equal(processed[2], logits[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Temperature(0.0), "temperature must be greater than 0, found 0.0; for greedy search use GreedySearch"),
        (lambda: TopK(0), "top_k must be at least 1, found 0"),
        (lambda: TopP(1.5), "top_p must be between 0 and 1, found 1.5"),
        (lambda: MinP(-0.1), "min_p must be between 0 and 1, found -0.1"),
        (lambda: RepetitionPenalty(0.0), "repetition_penalty must be greater than 0, found 0.0"),
        (lambda: NoRepeatNgram(0), "no_repeat_ngram_size must be at least 1, found 0"),
        (lambda: SuppressSequences([[1], []]), "at least one token"),
        (
            lambda: SuppressSequences([[1, 99]])(torch.zeros(1, 9), [TokenSequence([1], 1, 9)]),
            r"\[1, 99\] has a token id outside the vocabulary of 9",
        ),
        (
            lambda: ForcedPrefix([99])(torch.zeros(1, 9), [TokenSequence([1], 1, 9)]),
            "forced token id 99 is outside the vocabulary of 9",
        ),
    ],
)
def test_invalid_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", PAIRS)
def test_masking_processors_only_mask(name):
    """They leave all other logits unchanged and mask the same tokens in log-probabilities; other processors do not."""
    processor = PAIRS[name][0]
    sequences = [
        TokenSequence(tokens=[1, 2, *new_tokens], prompt_length=PROMPT_LENGTH, max_new_tokens=MAX_NEW_TOKENS)
        for new_tokens in ([], [1, 2, 2, 1, 3], [0, 4, 5])
    ]
    logits = 3 * torch.randn(len(sequences), VOCABULARY, generator=torch.Generator().manual_seed(2))
    processed, shifted = (processor(scores.clone(), sequences) for scores in (logits, logits.log_softmax(dim=1)))
    masked = processed.isneginf()
    masks_only = torch.equal(processed[~masked], logits[~masked]) and torch.equal(masked, shifted.isneginf())
    assert masks_only == isinstance(processor, MaskingProcessor) == only_masks([processor])
    assert not only_masks([processor, Temperature(2.0)])
