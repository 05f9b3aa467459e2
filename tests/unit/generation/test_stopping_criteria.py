"""When a text ends, and what it says of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.generation.networks import network
from unit.transformer.small_networks import examples

from regard.generation import Beam, EndAtLimit, Given, Greedy, MinLength, Repeat, Settings, Stopped, Text, generate
from regard.generation.sequence import Row
from regard.generation.stopping_criteria import End, at_limit, first


def row(written, before=(), limit=99):
    return Row([*before, *written], len(before), limit)


def loops(written, size, times):
    """The definition: the end is some piece, so many times."""
    return any(
        len(written) >= length * times and written[-length * times :] == written[-length:] * times
        for length in range(1, size + 1)
    )


@given(st.lists(st.integers(0, 1), max_size=14), st.integers(1, 4), st.integers(2, 4))
@examples(300)
def test_a_loop_is_a_piece_that_is_written_so_many_times(written, size, times):
    found = Repeat(size=size, times=times)(row(written, before=(0, 0, 0, 0)))
    assert found is (Stopped.REPEAT if loops(written, size, times) else None)


def test_an_end_that_was_given_ends_nothing():
    assert End([2])(row([], before=[1, 2])) is None
    assert End([2])(row([2], before=[1])) is Stopped.END
    assert End([2])(row([2, 3], before=[1])) is None


def test_a_text_may_end_inside_a_token():
    pieces = {1: "ab", 2: "c\n", 3: "\nd"}
    stop = Text(["\n\n"], lambda tokens: "".join(pieces[token] for token in tokens))
    assert stop(row([1, 2], before=[3, 3])) is None
    assert stop(row([1, 2, 3], before=[3])) is Stopped.TEXT


def test_the_first_condition_that_holds_is_the_reason():
    both = [End([2]), lambda _: Stopped.TEXT]
    assert first(both)(row([2])) is Stopped.END
    assert first(both[::-1])(row([2])) is Stopped.TEXT
    assert first([])(row([2])) is None


@given(tokens=st.lists(st.integers(1, 4), max_size=5), ends=st.sets(st.integers(1, 4)), limit=st.integers(1, 6))
def test_an_end_and_the_limit_are_seen_in_one_look(tokens, ends, limit):
    """What is asked most has a way of its own; a condition that never holds takes it away."""
    one, never = row(tokens, before=[1], limit=limit), lambda _: None
    conditions = [End(list(ends)), at_limit]
    assert first(conditions)(one) is first([*conditions, never])(one)


def test_an_end_of_another_kind_is_asked_itself():
    class Never(End):
        def __call__(self, row):
            return None

    assert first([Never([2]), at_limit])(row([2])) is None


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3)], ids=["greedy", "beam"])
def test_results_say_why_they_ended(search):
    net, given_text = network("rotary"), [Given([4, 7, 7])]

    def told(**more):
        return next(generate(net, given_text, Settings(**{"search": search, "limit": 12} | more)))

    plain = told()
    assert (plain.stopped, len(plain.tokens), plain.limit) == (Stopped.LENGTH, 12, 12)
    greedy = told(search=Greedy())
    at = greedy.tokens.index(greedy.tokens[3])
    ended = told(end=[greedy.tokens[3]], search=Greedy())
    assert (ended.stopped, ended.tokens) == (Stopped.END, greedy.tokens[: at + 1])
    spelt = told(stop=[Text(["xxx"], lambda tokens: "x" * len(tokens))])
    assert (spelt.stopped, len(spelt.tokens)) == (Stopped.TEXT, 3)
    never = told(stop=[Text(["a text that never comes"], lambda tokens: "")])
    assert (never.stopped, never.tokens) == (Stopped.LENGTH, plain.tokens)


def test_a_loop_stops_a_network_that_is_caught_in_one():
    net = network("learned")
    plain = next(generate(net, [Given([4])], Settings(limit=30)))
    stopped = next(generate(net, [Given([4])], Settings(limit=30, stop=[Repeat(size=4, times=3)])))
    assert loops(list(stopped.tokens), 4, 3)
    assert not loops(list(stopped.tokens[:-1]), 4, 3)
    assert stopped.stopped is Stopped.REPEAT
    assert plain.tokens[: len(stopped.tokens)] == stopped.tokens


@pytest.mark.parametrize("search", [Greedy(), Beam(size=2)], ids=["greedy", "beam"])
def test_an_end_for_want_of_room_is_called_length(search):
    settings = Settings(search=search, end=[2], rules=[MinLength(2, [2]), EndAtLimit(2)], limit=3)
    result = next(generate(network("rotary"), [Given([4])], settings))
    assert (len(result.tokens), result.tokens[-1], result.stopped) == (3, 2, Stopped.LENGTH)


@pytest.mark.parametrize("wrong", [dict(size=0), dict(times=1)])
def test_loops_that_are_none(wrong):
    with pytest.raises(ValueError, match="a loop is one token or more"):
        Repeat(**wrong)


def test_an_empty_text_would_stop_everything():
    with pytest.raises(ValueError, match="at least one character"):
        Text(["x", ""], str)
