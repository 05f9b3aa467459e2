"""The table of a shortlist: lookup, file, and what is rejected."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from regard.checkpoint.files import CheckpointError
from regard.engine.shortlist import SHORTLIST_FILE, Shortlist, load_shortlist, save_shortlist


def table(lists, frequent=(), vocabulary=30):
    """Return a shortlist from lists of target tokens, one for each source token."""
    starts = [sum(map(len, lists[:token])) for token in range(len(lists) + 1)]
    columns = (starts, [token for targets in lists for token in targets], frequent)
    starts, targets, frequent = (torch.tensor(list(column), dtype=torch.int32) for column in columns)
    return Shortlist(starts=starts, targets=targets, frequent=frequent, vocabulary=vocabulary)


tokens = st.lists(st.integers(0, 29), max_size=6)


@given(st.lists(tokens, min_size=5, max_size=5), tokens, tokens, st.lists(st.integers(0, 4), min_size=1, max_size=9))
def test_a_list_is_what_its_definition_says(lists, frequent, always, source):
    expected = {token for one in source for token in lists[one]} | set(frequent) | set(always)
    assert table(lists, frequent).lookup(source, always).tolist() == sorted(expected)


def test_it_is_kept_and_read_again(tmp_path):
    one = table([[3, 1], [], [29]], [7, 2])
    save_shortlist(tmp_path, one)
    again = load_shortlist(tmp_path)
    assert (again.vocabulary, again.source_vocabulary) == (30, 3)
    for name in ("starts", "targets", "frequent"):
        assert torch.equal(getattr(again, name), getattr(one, name))


def test_a_folder_without_one_is_told_how_to_get_one(tmp_path):
    with pytest.raises(ValueError, match=r"has no shortlist .*regard convert MODEL TARGET --shortlist"):
        load_shortlist(tmp_path)


def test_a_table_of_other_vocabularies_is_refused():
    with pytest.raises(
        ValueError, match=r"has vocabularies of 2 \(source\) and 30 \(target\), the network has 2 and 31"
    ):
        table([[1], [2]]).check_vocabularies(2, 31, "model")
    table([[1], [2]]).check_vocabularies(2, 30, "model")


@pytest.mark.parametrize(
    "change",
    [
        {"targets": torch.tensor([1, 30])},
        {"targets": torch.tensor([1, -1])},
        {"frequent": torch.tensor([31])},
        {"starts": torch.tensor([0, 2, 1])},
        {"starts": torch.tensor([0, 1, 99])},
        {"starts": torch.tensor([1, 1, 2])},
        {"starts": torch.zeros(0, dtype=torch.long)},
        {"starts": torch.tensor([0.0, 1.0, 2.0])},
        {"targets": torch.tensor([[1, 2]])},
        {"more": torch.tensor([1])},
    ],
)
def test_a_damaged_table_is_refused(change, tmp_path):
    save_shortlist(tmp_path, table([[1], [2]]))
    save_file(load_file(tmp_path / SHORTLIST_FILE) | change, tmp_path / SHORTLIST_FILE)
    with pytest.raises(CheckpointError, match=r"shortlist\.safetensors.*regard convert"):
        load_shortlist(tmp_path)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / SHORTLIST_FILE).write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="corrupt or not a safetensors file"):
        load_shortlist(tmp_path)
