import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.transformer.reference_network import may_attend
from unit.transformer.small_networks import chances, few, many, text

from regard.transformer.mask import (
    And,
    Band,
    Causal,
    Documents,
    Everything,
    Explicit,
    Or,
    Padding,
    Prefix,
    Triangle,
    Window,
    split_padding,
)

BATCH, LENGTH = 3, 7
seeds = st.integers(0, 999)


def formula(mask):
    """A mask that needs no tensor, and its rule."""
    return mask, lambda row, query, key: may_attend(mask, query, key)


def padding(seed):
    real = chances(BATCH, LENGTH, seed=seed)
    return Padding(real), lambda row, query, key: bool(real[row, key])


def prefix(seed):
    lengths = text(BATCH, seed=seed, kinds=LENGTH + 1)
    return Prefix(lengths), lambda row, query, key: key < int(lengths[row])


def documents(seed):
    ids = text(BATCH, LENGTH, seed=seed, kinds=3)
    return Documents(ids), lambda row, query, key: int(ids[row, query]) == int(ids[row, key])


def explicit(seed):
    allowed = chances(BATCH, LENGTH, LENGTH, seed=seed)
    return Explicit(allowed), lambda row, query, key: bool(allowed[row, query, key])


FORMULAS = [Everything(), Causal(), Window(0), Window(2), Band(1), Band(3)]
plain = st.sampled_from(FORMULAS).map(formula)
tabled = st.builds(prefix, seeds) | st.builds(documents, seeds) | st.builds(explicit, seeds)
leaves = plain | tabled | st.builds(padding, seeds)


def both(one, other):
    return one[0] & other[0], lambda *at: one[1](*at) and other[1](*at)


def either(one, other):
    return one[0] | other[0], lambda *at: one[1](*at) or other[1](*at)


def combined(parts):
    return st.recursive(
        parts, lambda inner: st.builds(both, inner, inner) | st.builds(either, inner, inner), max_leaves=5
    )


def written_out(mask, rows, query, key):
    """A mask as a dense tensor: rows × queries × keys."""
    evaluated = mask.attention_mask(rows, query, key)
    if evaluated is None:
        evaluated = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    return evaluated.expand(rows.stop - rows.start, 1, query.shape[1], key.shape[1])[:, 0]


def by_loop(rule, rows, query, key):
    count = rows.stop - rows.start
    query, key = query.expand(count, -1).tolist(), key.expand(count, -1).tolist()
    return torch.tensor(
        [[[rule(row, q, k) for k in key[i]] for q in query[i]] for i, row in enumerate(range(BATCH)[rows])]
    )


@given(mask_and_rule=combined(leaves), rows=st.sampled_from([slice(0, 3), slice(1, 3), slice(2, 3)]), seed=seeds,
       one_line=st.booleans())  # fmt: skip
@many
def test_every_mask_and_combination_is_its_rule_at_any_positions_of_any_rows(mask_and_rule, rows, seed, one_line):
    mask, rule = mask_and_rule
    lines = 1 if one_line else rows.stop - rows.start
    query, key = text(lines, 4, seed=seed, kinds=LENGTH), text(lines, 5, seed=seed + 1, kinds=LENGTH)
    assert torch.equal(written_out(mask, rows, query, key), by_loop(rule, rows, query, key))


KINDS = [padding(5), prefix(5), documents(5), explicit(5), *map(formula, FORMULAS)]


@pytest.mark.parametrize(("mask", "rule"), KINDS, ids=[type(mask).__name__ for mask, _ in KINDS])
def test_each_kind_is_its_rule(mask, rule):
    line = torch.arange(LENGTH)[None]
    rows = slice(0, BATCH)
    assert torch.equal(written_out(mask, rows, line, line.clone()), by_loop(rule, rows, line, line))


@given(one=combined(leaves), other=combined(leaves))
@few
def test_and_or_are_elementwise(one, other):
    at = (slice(0, BATCH), torch.arange(LENGTH)[None], torch.arange(LENGTH)[None].clone())
    for operation in (operator.and_, operator.or_):
        joined = written_out(operation(one[0], other[0]), *at)
        assert torch.equal(joined, operation(written_out(one[0], *at), written_out(other[0], *at)))


def test_the_triangle_is_shown_only_by_causal_and_only_when_queries_are_the_keys():
    rows, at = slice(0, 1), torch.arange(LENGTH)[None]
    assert isinstance(Causal().attention_mask(rows, at, at), Triangle)
    assert isinstance((Everything() & Causal()).attention_mask(rows, at, at), Triangle)
    assert torch.equal(Causal().attention_mask(rows, at, at.clone())[0, 0], torch.ones(LENGTH, LENGTH).tril().bool())
    for other in [*FORMULAS[2:], Causal() & Window(2), Causal() | Window(2)]:
        assert isinstance(other.attention_mask(rows, at, at), torch.Tensor)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_band_is_the_causal_half_of_a_window(width):
    at = (slice(0, 1), torch.arange(LENGTH)[None], torch.arange(2, LENGTH)[None])
    assert torch.equal(written_out(Band(width), *at), written_out(Causal() & Window(width - 1), *at))


def kinds_in(mask):
    return kinds_in(mask.left) | kinds_in(mask.right) if isinstance(mask, And | Or) else {type(mask)}


nested_and = st.recursive(leaves, lambda inner: st.builds(both, inner, inner), max_leaves=6)


@given(parts=st.lists(nested_and | combined(plain | tabled), min_size=1, max_size=3))
@many
def test_padding_is_taken_out_of_any_nest_of_and(parts):
    full = parts[0]
    for part in parts[1:]:
        full = both(part, full)
    mask, rule = full
    real, rest = split_padding(mask)
    assert Padding not in kinds_in(rest)
    assert (real is None) == (Padding not in kinds_in(mask))
    at = (slice(0, BATCH), torch.arange(LENGTH)[None], torch.arange(LENGTH)[None].clone())
    again = written_out(rest, *at) if real is None else written_out(rest, *at) & real[:, None, :]
    assert torch.equal(again, by_loop(rule, *at))


def test_padding_under_or_is_an_error_at_any_depth():
    mask = Padding(chances(BATCH, LENGTH))
    for wrong in (
        mask | Causal(),
        Causal() | mask,
        (Causal() & mask) | Window(1),
        Causal() & (Window(1) | (mask & Band(2))),
    ):
        with pytest.raises(ValueError, match=r"combine Padding with & only, not \|"):
            split_padding(wrong)


@given(mask_and_rule=combined(st.builds(documents, seeds) | st.builds(explicit, seeds)), seed=seeds)
@few
def test_compacted_it_shows_the_compacted_row_what_it_showed_the_tokens_before(mask_and_rule, seed):
    mask, rule = mask_and_rule
    real = chances(BATCH, LENGTH, seed=seed, p=0.7)
    order = torch.stack([torch.tensor([*row.nonzero()[:, 0], *(~row).nonzero()[:, 0]]) for row in real])
    compact = mask.compact(order)
    for row, real_row in enumerate(real):
        columns = real_row.nonzero()[:, 0].tolist()
        at = torch.arange(len(columns))[None]
        expected = torch.tensor([[rule(row, query, key) for key in columns] for query in columns], dtype=torch.bool)
        evaluated = written_out(compact, slice(row, row + 1), at, at.clone())[0]
        assert torch.equal(evaluated, expected.view(len(columns), len(columns)))


@given(mask_and_rule=plain | st.builds(prefix, seeds))
@few
def test_masks_that_count_real_tokens_do_not_change_when_compacted(mask_and_rule):
    mask, _ = mask_and_rule
    assert mask.compact(text(BATCH, LENGTH, kinds=LENGTH)) is mask
