"""The runner of encoders: order, batches and windows, each against its definition."""

from itertools import pairwise, zip_longest
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.data import tiny_tokenizers

from regard.tasks.encoder_runner import (
    EncoderRunner,
    TokenRow,
    encode_texts,
    process_in_buffers,
    split_to_windows,
    token_batches,
    truncated_positions,
)
from regard.tokenization.tokenizer import Encoding


class Counting(torch.nn.Module):
    """A network whose logits for a token are its id, its segment and the length of its row. It counts its calls."""

    reads_segments = True

    def __init__(self, pooled):
        super().__init__()
        self.parameter, self.pooled, self.sizes = torch.nn.Parameter(torch.zeros(1)), pooled, []

    def forward(self, tokens, *, layout, segments):
        self.sizes.append((layout.batch_size, layout.num_tokens))
        lengths = torch.tensor(layout.lengths)[layout.row_indices]
        logits = torch.stack([tokens, segments, lengths], dim=1).float()
        return SimpleNamespace(logits=logits[layout.first_indices] if self.pooled else logits)


ROWS = st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1)), min_size=1, max_size=9), max_size=12)


@given(ROWS, st.integers(1, 30))
def test_outputs_come_in_the_order_of_the_rows(values, batch_tokens):
    rows = [TokenRow([token for token, _ in row], [segment for _, segment in row]) for row in values]
    network = Counting(pooled=False)
    outputs = EncoderRunner(network, batch_tokens).token_logits(rows)
    assert [output.tolist() for output in outputs] == [
        [[token, segment, len(row)] for token, segment in row] for row in values
    ]
    assert all(tokens <= batch_tokens or rows == 1 for rows, tokens in network.sizes)
    pooled = EncoderRunner(Counting(pooled=True), batch_tokens).sequence_logits(rows)
    assert [output.tolist() for output in pooled] == [[*row[0], len(row)] for row in values]


def test_a_row_without_tokens_is_an_error():
    with pytest.raises(ValueError, match="no tokens"):
        EncoderRunner(Counting(pooled=True), 8).sequence_logits([TokenRow([1], [0]), TokenRow([], [])])


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_batches_hold_as_many_tokens_as_fit(lengths, limit):
    batches = list(token_batches(range(len(lengths)), lengths, limit))
    assert [index for batch in batches for index in batch] == list(range(len(lengths)))
    for batch, following in zip_longest(batches, batches[1:]):
        total = sum(lengths[index] for index in batch)
        assert total <= limit or len(batch) == 1
        assert following is None or total + lengths[following[0]] > limit


def test_inputs_are_read_one_buffer_at_a_time():
    read = []

    def inputs():
        for number in range(7):
            read.append(number)
            yield number

    results = process_in_buffers(inputs(), 3, lambda buffer: [(number, len(read)) for number in buffer])
    assert list(results) == [(0, 3), (1, 3), (2, 3), (3, 6), (4, 6), (5, 6), (6, 7)]
    with pytest.raises(ValueError, match="found a single string"):
        next(process_in_buffers("text", 3, list))


def encoding(first, second=None):
    """The layout of BERT, by hand: [CLS] first [SEP], then second [SEP]."""
    ids, sequences = [1, *range(10, 10 + first), 2], [None, *[0] * first, None]
    if second is not None:
        ids, sequences = [*ids, *range(100, 100 + second), 2], [*sequences, *[1] * second, None]
    special = [sequence is None for sequence in sequences]
    return Encoding(ids, [""] * len(ids), [(0, 0)] * len(ids), [0] * len(ids), special, sequences)


@given(st.integers(0, 5), st.integers(0, 40), st.integers(9, 20), st.sampled_from([0.0, 0.25, 0.5, 0.9]))
def test_windows_cover_the_text_and_all_have_the_other_tokens(question, context, max_length, overlap):
    encoded = encoding(question, context)
    windows = split_to_windows(encoded, 1, max_length, overlap)
    text = {position for position, sequence in enumerate(encoded.sequence_ids) if sequence == 1}
    others = set(range(len(encoded))) - text
    capacity = max_length - len(others)
    assert set().union(*windows) == set(range(len(encoded)))
    for positions in windows:
        assert len(positions) <= max_length
        assert others <= set(positions)
        inside = sorted(set(positions) & text)
        assert inside == list(range(inside[0], inside[-1] + 1)) if inside else not text
    if len(encoded) <= max_length:
        assert len(windows) == 1
    for left, right in pairwise(windows):
        assert len(set(left) & set(right) & text) >= int(capacity * overlap)


def test_a_question_without_room_for_the_context_is_an_error():
    with pytest.raises(ValueError, match="at most 9 tokens, and 11 of them"):
        split_to_windows(encoding(8, 30), 1, 9)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(3, 30))
def test_of_a_pair_the_longer_text_is_truncated(first, second, max_length):
    encoded = encoding(first, second)
    positions, truncated = truncated_positions(encoded, max_length)
    assert len(positions) + truncated == len(encoded)
    assert len(positions) == min(len(encoded), max_length)
    expected = [first, second]
    for _ in range(truncated):
        expected[expected.index(max(expected))] -= 1
    assert [sum(encoded.sequence_ids[position] == side for position in positions) for side in (0, 1)] == expected


def test_texts_and_pairs_are_encoded_as_the_tokenizer_does():
    tokenizer = tiny_tokenizers.characters()
    texts = ["the dog", ("the dog", "a cat"), "a", ("x", "y")]
    expected = [tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode(*text) for text in texts]
    assert encode_texts(tokenizer, texts) == expected
