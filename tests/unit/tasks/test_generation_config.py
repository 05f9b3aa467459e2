"""The generation config is read from the right file, and its errors name the file and the key."""

import json

import pytest
import torch

from regard.generation import BeamSearch, EarlyStopping, GreedySearch, MinNewTokens
from regard.tasks.generation_config import normalize_logits, read_generation_config
from regard.tokenization.algorithms import WordLevel
from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.tokenizer_trainer import train_tokenizer

TOKENIZER = train_tokenizer(
    WordLevel(size=20), ["a b c"], special_tokens=SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>")
)


def read(folder, config=None, generation=None):
    for name, values in (("config.json", config), ("generation_config.json", generation)):
        if values is not None:
            (folder / name).write_text(values if isinstance(values, str) else json.dumps(values))
    return read_generation_config(folder, TOKENIZER)


def test_without_files_the_tokens_are_those_of_the_tokenizer(tmp_path):
    for config in (read_generation_config(None, TOKENIZER), read(tmp_path)):
        assert (config.decoder_start_token_id, config.bos_token_id, config.eos_token_ids) == (2, 2, (3,))
        assert config.search_strategy(None, 1, None) == GreedySearch()
        assert config.logits_processors(None) == []


def test_generation_config_json_has_precedence(tmp_path):
    """Settings come from one file, tokens from either: transformers saves some of them to config.json only."""
    old = dict(num_beams=5, min_length=7, decoder_start_token_id=9, eos_token_id=8)
    assert read(tmp_path, old).search_strategy(None, 1, None).beam == 5
    config = read(tmp_path, old, dict(num_beams=2, eos_token_id=[3, 4]))
    assert (config.decoder_start_token_id, config.eos_token_ids, config.beam, config.min_new_tokens) == (
        9,
        (3, 4),
        2,
        0,
    )


def test_null_is_a_missing_value(tmp_path):
    config = read(tmp_path, None, dict(eos_token_id=None, num_beams=None, early_stopping=None, bad_words_ids=None))
    assert config.eos_token_ids == (3,)
    assert config.search_strategy(None, 1, None) == GreedySearch()


def test_search_strategies(tmp_path):
    config = read(tmp_path, None, dict(num_beams=4, length_penalty=0.6, early_stopping="never"))
    assert config.search_strategy(None, 1, None) == BeamSearch(
        beam=4, length_penalty=0.6, early_stopping=EarlyStopping.NEVER
    )
    assert config.search_strategy(2, 2, 1.5) == BeamSearch(
        beam=2, length_penalty=1.5, early_stopping=EarlyStopping.NEVER, n_best=2
    )
    assert config.search_strategy(1, 1, None) == GreedySearch()
    assert config.search_strategy(None, 6, None).beam == 6  # the default beam size is raised to n_best
    with pytest.raises(ValueError, match="n_best must be between 1 and beam=2"):
        config.search_strategy(2, 3, None)
    with pytest.raises(ValueError, match="n_best must be at least 1, found 0"):
        config.search_strategy(None, 0, None)


def test_max_new_tokens_overrides_the_minimum_length(tmp_path):
    config = read(tmp_path, None, dict(min_length=56))
    assert config.logits_processors(None) == [MinNewTokens(55, (3,))]
    assert config.logits_processors(9) == [MinNewTokens(9, (3,))]


def test_an_eos_token_among_bad_words_stays_allowed(tmp_path):
    assert read(tmp_path, None, dict(bad_words_ids=[[3], [4, 3], [5]], suppress_tokens=[6])).suppress_sequences == (
        (4, 3),
        (5,),
        (6,),
    )


def test_logits_are_renormalized():
    logits = torch.tensor([[0.2, -torch.inf, 1.0], [-torch.inf] * 3], dtype=torch.float64)
    normalized = normalize_logits(logits, [])
    assert normalized[0].exp().sum() == pytest.approx(1)
    assert normalized[0, 2] - normalized[0, 0] == pytest.approx(0.8)
    assert bool(normalized[1].isneginf().all())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_beams": "four"}, "num_beams is 'four'; expected a number"),
        ({"num_beams": 1.5}, "expected a non-negative integer"),
        ({"min_length": -1}, "expected a non-negative integer"),
        ({"eos_token_id": "</s>"}, "expected a token id"),
        ({"eos_token_id": [True]}, "expected a token id"),
        ({"bad_words_ids": [5]}, "expected a list of lists"),
        ({"bad_words_ids": [["a"]]}, "expected a list of lists"),
        ({"early_stopping": "sometimes"}, 'expected true, false or "never"'),
        ("{", "generation_config.json, line 1: invalid JSON"),
        ([1], "expected a JSON object, found list"),
    ],
)
def test_errors_name_the_file(tmp_path, values, message):
    with pytest.raises(ValueError, match=r"generation_config\.json") as error:
        read(tmp_path, None, values)
    assert message in str(error.value)


def test_prefixes_are_listed_by_task(tmp_path):
    tasks = {"summarization": {"prefix": "summarize: "}, "other": {"num_beams": 2}, "none": None}
    assert read(tmp_path, {"task_specific_params": tasks}).prefixes == {"summarization": "summarize: "}
    with pytest.raises(ValueError, match=r"config\.json: task_specific_params"):
        read(tmp_path, {"task_specific_params": [1]})


@pytest.mark.parametrize("key", ["num_beams", "length_penalty", "min_length", "repetition_penalty"])
@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "NaN", "1e400", "1e30"])
def test_numbers_without_meaning_are_refused(tmp_path, key, value):
    with pytest.raises(ValueError, match=rf"generation_config\.json: {key} is .*; expected a"):
        read(tmp_path, generation=f'{{"{key}": {value}}}')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10**9, 1, None), "the beam size must be at most 1,000, found 1,000,000,000"),
        ((None, 10**9, None), "the beam size must be at most 1,000"),
        ((4, 1, 1e300), "length_penalty must be between -50 and 50"),
        ((4, 1, float("nan")), "length_penalty must be between -50 and 50"),
    ],
)
def test_searches_that_no_machine_can_run_are_refused(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path).search_strategy(*arguments)
