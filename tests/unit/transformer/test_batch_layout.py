import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.small_networks import chances, many, numbers

from regard.transformer.batch_layout import BatchLayout, layout_from_mask

# Small ranges, so that runs of equal lengths are common.
shapes = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=6)


def built(shape):
    return BatchLayout.of([length for length, _ in shape], starts=[start for _, start in shape])


@given(shape=shapes)
@many
def test_every_number_is_what_a_loop_over_the_rows_counts(shape):
    layout = built(shape)
    expected = [(row, column, start + column) for row, (length, start) in enumerate(shape) for column in range(length)]
    assert layout.row_indices.tolist() == [row for row, _, _ in expected]
    assert layout.column_indices.tolist() == [column for _, column, _ in expected]
    assert layout.positions.tolist() == [position for _, _, position in expected]
    assert layout.first_indices.tolist() == [i for i, (_, column, _) in enumerate(expected) if column == 0]
    assert layout.last_indices.tolist() == [
        i for i, (row, column, _) in enumerate(expected) if column == shape[row][0] - 1
    ]
    assert (layout.batch_size, layout.num_tokens) == (len(shape), len(expected))
    assert layout.longest == max(length for length, _ in shape)
    assert layout.first_position == min(position for _, _, position in expected)
    assert layout.end_position == max(position for _, _, position in expected) + 1
    assert layout.uniform == all(length == shape[0][0] for length, _ in shape)
    assert layout.aligned == all(start == shape[0][1] for _, start in shape)


@given(shape=shapes)
@many
def test_groups_are_the_longest_runs_of_rows_of_one_length(shape):
    layout = built(shape)
    expected = torch.arange(layout.num_tokens)
    covered = []
    for group in layout.groups:
        members = range(layout.batch_size)[group.rows]
        assert {layout.lengths[row] for row in members} == {group.length}
        assert group.count == len(members)
        assert expected[group.tokens].tolist() == [
            i for i, row in enumerate(layout.row_indices.tolist()) if row in members
        ]
        at = layout.group_positions(group).expand(group.count, -1)
        assert at.flatten().tolist() == layout.positions[group.tokens].tolist()
        covered += members
    assert covered == list(range(layout.batch_size))
    neighbours = zip(layout.groups, layout.groups[1:], strict=False)
    assert all(one.length != other.length for one, other in neighbours)


@given(pairs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6))
@many
def test_together_cuts_queries_and_keys_of_the_same_rows(pairs):
    mine, others = BatchLayout.of([one for one, _ in pairs]), BatchLayout.of([other for _, other in pairs])
    covered = []
    for query_group, key_group in mine.paired_groups(others):
        assert query_group.rows == key_group.rows
        members = range(len(pairs))[query_group.rows]
        assert {pairs[row] for row in members} == {(query_group.length, key_group.length)}
        for rows, group in ((mine, query_group), (others, key_group)):
            assert sorted(set(rows.row_indices[group.tokens].tolist())) == list(members)
            assert group.tokens.stop - group.tokens.start == group.length * len(members)
        covered += members
    assert covered == list(range(len(pairs)))


@given(shape=shapes)
@many
def test_pad_fills_with_zeros_on_the_right_and_pack_undoes_it(shape):
    layout = built(shape)
    packed = numbers(layout.num_tokens, 5, 2)
    padded = layout.pad(packed)
    token = 0
    for row, (length, _) in enumerate(shape):
        for column in range(layout.longest):
            expected = packed[token] if column < length else torch.zeros(5, 2).double()
            assert torch.equal(padded[row, column], expected)
            token += column < length
    assert torch.equal(layout.pack(padded), packed)


@given(shape=shapes)
@many
def test_gradients_go_through_pad_and_pack(shape):
    layout = built(shape)
    packed, weight = numbers(layout.num_tokens, 3).requires_grad_(), numbers(layout.num_tokens, 3, seed=1)
    layout.pack(layout.pad(packed)).backward(weight)
    assert torch.equal(packed.grad, weight)


@given(seed=st.integers(0, 999), batch=st.integers(1, 5), length=st.integers(1, 6))
@many
def test_the_rows_of_a_padded_batch_are_its_real_tokens_line_by_line(seed, batch, length):
    real = chances(batch, length, seed=seed)
    real[:, 0] |= ~real.any(dim=1)
    layout, indices = layout_from_mask(real)
    expected = [(row, column) for row in range(batch) for column in range(length) if real[row, column]]
    assert indices.tolist() == [row * length + column for row, column in expected]
    assert layout.row_indices.tolist() == [row for row, _ in expected]


@pytest.mark.parametrize("lengths", [[], [0], [3, 0, 2], [2, -1]])
def test_a_row_without_tokens_is_an_error(lengths):
    with pytest.raises(ValueError, match="every sequence needs at least one token"):
        BatchLayout.of(lengths)


def test_starts_default_to_zero():
    assert BatchLayout.of([2, 3]).start_positions == (0, 0)
