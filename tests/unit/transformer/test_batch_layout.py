import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.small_networks import chances, many, numbers

from regard.transformer.batch_layout import Rows, rows_of_padded

# Few different numbers, so that runs of equal lengths are common.
shapes = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=6)


def built(shape):
    return Rows.of([length for length, _ in shape], starts=[start for _, start in shape])


@given(shape=shapes)
@many
def test_every_number_is_what_a_loop_over_the_rows_counts(shape):
    rows = built(shape)
    told = [(row, column, start + column) for row, (length, start) in enumerate(shape) for column in range(length)]
    assert rows.row_of.tolist() == [row for row, _, _ in told]
    assert rows.columns.tolist() == [column for _, column, _ in told]
    assert rows.positions.tolist() == [position for _, _, position in told]
    assert rows.first.tolist() == [i for i, (_, column, _) in enumerate(told) if column == 0]
    assert rows.last.tolist() == [i for i, (row, column, _) in enumerate(told) if column == shape[row][0] - 1]
    assert (rows.batch, rows.tokens) == (len(shape), len(told))
    assert rows.longest == max(length for length, _ in shape)
    assert rows.begin == min(position for _, _, position in told)
    assert rows.end == max(position for _, _, position in told) + 1
    assert rows.uniform == all(length == shape[0][0] for length, _ in shape)
    assert rows.aligned == all(start == shape[0][1] for _, start in shape)


@given(shape=shapes)
@many
def test_groups_are_the_longest_runs_of_rows_of_one_length(shape):
    rows = built(shape)
    told = torch.arange(rows.tokens)
    covered = []
    for group in rows.groups:
        members = range(rows.batch)[group.rows]
        assert {rows.lengths[row] for row in members} == {group.length}
        assert group.count == len(members)
        assert told[group.tokens].tolist() == [i for i, row in enumerate(rows.row_of.tolist()) if row in members]
        at = rows.positions_of(group).expand(group.count, -1)
        assert at.flatten().tolist() == rows.positions[group.tokens].tolist()
        covered += members
    assert covered == list(range(rows.batch))
    neighbours = zip(rows.groups, rows.groups[1:], strict=False)
    assert all(one.length != other.length for one, other in neighbours)


@given(pairs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6))
@many
def test_together_cuts_queries_and_keys_of_the_same_rows(pairs):
    mine, others = Rows.of([one for one, _ in pairs]), Rows.of([other for _, other in pairs])
    covered = []
    for asked, answered in mine.together(others):
        assert asked.rows == answered.rows
        members = range(len(pairs))[asked.rows]
        assert {pairs[row] for row in members} == {(asked.length, answered.length)}
        for rows, group in ((mine, asked), (others, answered)):
            assert sorted(set(rows.row_of[group.tokens].tolist())) == list(members)
            assert group.tokens.stop - group.tokens.start == group.length * len(members)
        covered += members
    assert covered == list(range(len(pairs)))


@given(shape=shapes)
@many
def test_pad_fills_with_zeros_on_the_right_and_pack_undoes_it(shape):
    rows = built(shape)
    packed = numbers(rows.tokens, 5, 2)
    padded = rows.pad(packed)
    token = 0
    for row, (length, _) in enumerate(shape):
        for column in range(rows.longest):
            expected = packed[token] if column < length else torch.zeros(5, 2).double()
            assert torch.equal(padded[row, column], expected)
            token += column < length
    assert torch.equal(rows.pack(padded), packed)


@given(shape=shapes)
@many
def test_gradients_go_through_pad_and_pack(shape):
    rows = built(shape)
    packed, weight = numbers(rows.tokens, 3).requires_grad_(), numbers(rows.tokens, 3, seed=1)
    rows.pack(rows.pad(packed)).backward(weight)
    assert torch.equal(packed.grad, weight)


@given(seed=st.integers(0, 999), batch=st.integers(1, 5), length=st.integers(1, 6))
@many
def test_the_rows_of_a_padded_batch_are_its_real_tokens_line_by_line(seed, batch, length):
    real = chances(batch, length, seed=seed)
    real[:, 0] |= ~real.any(dim=1)
    rows, places = rows_of_padded(real)
    told = [(row, column) for row in range(batch) for column in range(length) if real[row, column]]
    assert places.tolist() == [row * length + column for row, column in told]
    assert rows.row_of.tolist() == [row for row, _ in told]


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 2], [2, -1]])
def test_a_row_without_tokens_is_an_error(lengths):
    with pytest.raises(ValueError, match="each row needs at least one token"):
        Rows.of(lengths)


def test_starts_default_to_zero():
    assert Rows.of([2, 3]).starts == (0, 0)
