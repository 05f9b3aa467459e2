"""When generation stops, and the reason that results give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.generation.networks import network
from unit.transformer.small_networks import examples

from regard.generation import (
    BeamSearch,
    DecodingOptions,
    ForcedEos,
    GreedySearch,
    Inputs,
    MinNewTokens,
    Repetition,
    StopReason,
    StopString,
    generate,
)
from regard.generation.sequence import TokenSequence
from regard.generation.stopping_criteria import EosToken, combine_criteria, reached_max_new_tokens


def sequence(new_tokens, prompt=(), max_new_tokens=99):
    return TokenSequence([*prompt, *new_tokens], len(prompt), max_new_tokens)


def repeats_itself(tokens, max_size, times):
    """The definition: the tokens end with some n-gram, repeated this many times."""
    return any(
        len(tokens) >= size * times and tokens[-size * times :] == tokens[-size:] * times
        for size in range(1, max_size + 1)
    )


@given(st.lists(st.integers(0, 1), max_size=14), st.integers(1, 4), st.integers(2, 4))
@examples(300)
def test_a_repetition_is_an_ngram_several_times_in_a_row(tokens, size, times):
    reason = Repetition(max_ngram_size=size, repeats=times)(sequence(tokens, prompt=(0, 0, 0, 0)))
    assert reason is (StopReason.REPEAT if repeats_itself(tokens, size, times) else None)


def test_an_eos_token_in_the_prompt_does_not_stop():
    assert EosToken([2])(sequence([], prompt=[1, 2])) is None
    assert EosToken([2])(sequence([2], prompt=[1])) is StopReason.END
    assert EosToken([2])(sequence([2, 3], prompt=[1])) is None


def test_a_stop_string_may_end_inside_a_token():
    strings = {1: "ab", 2: "c\n", 3: "\nd"}
    stop = StopString(["\n\n"], lambda tokens: "".join(strings[token] for token in tokens))
    assert stop(sequence([1, 2], prompt=[3, 3])) is None
    assert stop(sequence([1, 2, 3], prompt=[3])) is StopReason.TEXT


def test_the_first_criterion_that_holds_is_the_reason():
    criteria = [EosToken([2]), lambda _: StopReason.TEXT]
    assert combine_criteria(criteria)(sequence([2])) is StopReason.END
    assert combine_criteria(criteria[::-1])(sequence([2])) is StopReason.TEXT
    assert combine_criteria([])(sequence([2])) is None


@given(tokens=st.lists(st.integers(1, 4), max_size=5), ends=st.sets(st.integers(1, 4)), limit=st.integers(1, 6))
def test_the_fast_path_of_eos_and_length_gives_the_same(tokens, ends, limit):
    """A third criterion that never holds disables the fast path."""
    tested, never = sequence(tokens, prompt=[1], max_new_tokens=limit), lambda _: None
    criteria = [EosToken(list(ends)), reached_max_new_tokens]
    assert combine_criteria(criteria)(tested) is combine_criteria([*criteria, never])(tested)


def test_a_subclass_of_eos_token_is_called_itself():
    class Never(EosToken):
        def __call__(self, sequence):
            return None

    assert combine_criteria([Never([2]), reached_max_new_tokens])(sequence([2])) is None


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(beam=3)], ids=["greedy", "beam"])
def test_results_give_the_reason(search):
    net, inputs = network("rotary"), [Inputs([4, 7, 7])]

    def result(**options):
        return next(generate(net, inputs, DecodingOptions(**{"search": search, "max_new_tokens": 12} | options)))

    plain = result()
    assert (plain.stopped, len(plain.tokens), plain.max_new_tokens) == (StopReason.LENGTH, 12, 12)
    greedy = result(search=GreedySearch())
    index = greedy.tokens.index(greedy.tokens[3])
    ended = result(eos_token_ids=[greedy.tokens[3]], search=GreedySearch())
    assert (ended.stopped, ended.tokens) == (StopReason.END, greedy.tokens[: index + 1])
    at_string = result(stopping_criteria=[StopString(["xxx"], lambda tokens: "x" * len(tokens))])
    assert (at_string.stopped, len(at_string.tokens)) == (StopReason.TEXT, 3)
    never = result(stopping_criteria=[StopString(["a text that never comes"], lambda tokens: "")])
    assert (never.stopped, never.tokens) == (StopReason.LENGTH, plain.tokens)


def test_a_repetition_stops_generation():
    net = network("learned")
    plain = next(generate(net, [Inputs([4])], DecodingOptions(max_new_tokens=30)))
    stopped = next(
        generate(
            net,
            [Inputs([4])],
            DecodingOptions(max_new_tokens=30, stopping_criteria=[Repetition(max_ngram_size=4, repeats=3)]),
        )
    )
    assert repeats_itself(list(stopped.tokens), 4, 3)
    assert not repeats_itself(list(stopped.tokens[:-1]), 4, 3)
    assert stopped.stopped is StopReason.REPEAT
    assert plain.tokens[: len(stopped.tokens)] == stopped.tokens


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(beam=2)], ids=["greedy", "beam"])
def test_an_eos_token_that_is_forced_at_the_maximum_length_counts_as_length(search):
    options = DecodingOptions(
        search=search, eos_token_ids=[2], logits_processors=[MinNewTokens(2, [2]), ForcedEos(2)], max_new_tokens=3
    )
    result = next(generate(network("rotary"), [Inputs([4])], options))
    assert (len(result.tokens), result.tokens[-1], result.stopped) == (3, 2, StopReason.LENGTH)


@pytest.mark.parametrize("wrong", [dict(max_ngram_size=0), dict(repeats=1)])
def test_invalid_repetitions_are_refused(wrong):
    with pytest.raises(ValueError, match="max_ngram_size must be at least 1 and repeats at least 2"):
        Repetition(**wrong)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="at least one character"):
        StopString(["x", ""], str)
