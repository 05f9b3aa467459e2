"""What a folder says about writing is read from the right file, and what is wrong with it is said."""

import json

import pytest
import torch

from regard.generation import Beam, Greedy, MinLength, Until
from regard.tasks.generation_config import read, renormalized
from regard.tokenization.algorithms import Words
from regard.tokenization.tokenizer import Names
from regard.tokenization.tokenizer_trainer import train

TOKENIZER = train(Words(size=20), ["a b c"], special=Names(padding="<pad>", unknown="<unk>", begin="<s>", end="</s>"))


def habits(folder, config=None, generation=None):
    for name, values in (("config.json", config), ("generation_config.json", generation)):
        if values is not None:
            (folder / name).write_text(values if isinstance(values, str) else json.dumps(values))
    return read(folder, TOKENIZER)


def test_without_files_the_tokenizer_says_how(tmp_path):
    for found in (read(None, TOKENIZER), habits(tmp_path)):
        assert (found.start, found.first, found.end) == (2, 2, (3,))
        assert found.search(None, 1, None) == Greedy()
        assert found.rules(None) == []


def test_the_newer_file_goes_before_the_older_one(tmp_path):
    """Settings come from one file, tokens from either: transformers writes some of them to config.json only."""
    old = dict(num_beams=5, min_length=7, decoder_start_token_id=9, eos_token_id=8)
    assert habits(tmp_path, old).search(None, 1, None).size == 5
    found = habits(tmp_path, old, dict(num_beams=2, eos_token_id=[3, 4]))
    assert (found.start, found.end, found.beam, found.min_length) == (9, (3, 4), 2, 0)


def test_a_null_is_nothing_said(tmp_path):
    found = habits(tmp_path, None, dict(eos_token_id=None, num_beams=None, early_stopping=None, bad_words_ids=None))
    assert found.end == (3,)
    assert found.search(None, 1, None) == Greedy()


def test_searches(tmp_path):
    found = habits(tmp_path, None, dict(num_beams=4, length_penalty=0.6, early_stopping="never"))
    assert found.search(None, 1, None) == Beam(size=4, length_penalty=0.6, until=Until.IMPOSSIBLE)
    assert found.search(2, 2, 1.5) == Beam(size=2, length_penalty=1.5, until=Until.IMPOSSIBLE, best=2)
    assert found.search(1, 1, None) == Greedy()
    assert found.search(None, 6, None).size == 6  # nobody said how many beams, so there are enough
    with pytest.raises(ValueError, match="a beam of 2 gives from 1 to 2"):
        found.search(2, 3, None)
    with pytest.raises(ValueError, match="1 or more, found 0"):
        found.search(None, 0, None)


def test_a_limit_goes_before_the_authors_minimum(tmp_path):
    found = habits(tmp_path, None, dict(min_length=56))
    assert found.rules(None) == [MinLength(55, (3,))]
    assert found.rules(9) == [MinLength(9, (3,))]


def test_a_forbidden_end_ends_nevertheless(tmp_path):
    assert habits(tmp_path, None, dict(bad_words_ids=[[3], [4, 3], [5]], suppress_tokens=[6])).forbidden == (
        (4, 3),
        (5,),
        (6,),
    )


def test_what_the_rules_leave_adds_up_again():
    logits = torch.tensor([[0.2, -torch.inf, 1.0], [-torch.inf] * 3], dtype=torch.float64)
    given = renormalized(logits, [])
    assert given[0].exp().sum() == pytest.approx(1)
    assert given[0, 2] - given[0, 0] == pytest.approx(0.8)
    assert bool(given[1].isneginf().all())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_beams": "four"}, "num_beams is 'four'; expected a number"),
        ({"num_beams": 1.5}, "expected a whole number"),
        ({"min_length": -1}, "expected a whole number"),
        ({"eos_token_id": "</s>"}, "expected the id of a token"),
        ({"eos_token_id": [True]}, "expected the id of a token"),
        ({"bad_words_ids": [5]}, "expected a list of lists"),
        ({"bad_words_ids": [["a"]]}, "expected a list of lists"),
        ({"early_stopping": "sometimes"}, 'expected true, false or "never"'),
        ("{", "generation_config.json: this is no JSON"),
        ([1], "expected an object, found list"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, values, said):
    with pytest.raises(ValueError, match=r"generation_config\.json") as error:
        habits(tmp_path, None, values)
    assert said in str(error.value)


def test_prefixes_are_listed_by_task(tmp_path):
    tasks = {"summarization": {"prefix": "summarize: "}, "other": {"num_beams": 2}, "none": None}
    assert habits(tmp_path, {"task_specific_params": tasks}).prefixes == {"summarization": "summarize: "}
    with pytest.raises(ValueError, match=r"config\.json: task_specific_params"):
        habits(tmp_path, {"task_specific_params": [1]})
