"""Searches against their definitions: all sequences, one after the other."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from unit.generation.networks import network
from unit.transformer.small_networks import EMBEDDING, WORDS, decoder_only, made

from regard.generation import (
    AtOnce,
    Beam,
    Forbid,
    Given,
    Greedy,
    NoRepeat,
    Sample,
    Settings,
    Stopped,
    TopK,
    Until,
    generate,
)
from regard.generation.search import draw
from regard.generation.topk import top
from regard.transformer import config

WORDS_OF_TINY, END, LIMIT = 4, 3, 3


def tiny(seed):
    """Four words, one of which ends a text."""
    design = decoder_only("rotary", replace(WORDS, vocabulary=WORDS_OF_TINY), layers=1)
    tokens = config.Tokens(vocabulary=WORDS_OF_TINY, padding=0)
    return made(replace(design, embedding=replace(EMBEDDING, tokens=tokens)), seed)


def every_text():
    """All that can be written: ended, or as long as allowed."""
    words = range(WORDS_OF_TINY - 1)
    for length in range(LIMIT):
        for begin in itertools.product(words, repeat=length):
            yield (*begin, END)
    yield from itertools.product(words, repeat=LIMIT)


@torch.no_grad()
def log_probability(network, prompt, written):
    logits = network(torch.tensor([[*prompt, *written]])).logits[0].log_softmax(-1)
    return sum(float(logits[len(prompt) - 1 + at, token]) for at, token in enumerate(written))


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.8, -0.5])
@pytest.mark.parametrize("until", [Until.UNLIKELY, Until.IMPOSSIBLE])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_beam_as_wide_as_the_space_ranks_all_texts(seed, until, penalty):
    net, prompt = tiny(seed), [1, 0]
    ranked = sorted(
        ((log_probability(net, prompt, text) / len(text) ** penalty, text) for text in every_text()), reverse=True
    )
    wide = len(ranked)
    settings = Settings(search=Beam(size=wide, best=wide, length_penalty=penalty, until=until), end=[END], limit=LIMIT)
    result = next(generate(net, [Given(prompt)], settings))
    assert result.tokens == ranked[0][1]
    assert [found.tokens for found in result.hypotheses] == [text for _, text in ranked]
    assert [found.score for found in result.hypotheses] == pytest.approx([score for score, _ in ranked])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_narrow_beam_follows_the_best_of_each_step(size):
    """The plain definition: sort all continuations of all rows, keep the best."""
    net, prompt = network("rotary"), [4, 9]
    live = [((), 0.0)]
    for _ in range(5):
        grown = []
        for text, score in live:
            with torch.no_grad():
                said = net(torch.tensor([[*prompt, *text]])).logits[0, -1].log_softmax(-1).tolist()
            grown += [((*text, token), score + chance) for token, chance in enumerate(said)]
        live = sorted(grown, key=lambda one: -one[1])[:size]
    settings = Settings(search=Beam(size=size, best=size, length_penalty=0.0), limit=5)
    result = next(generate(net, [Given(prompt)], settings))
    assert [found.tokens for found in result.hypotheses] == [text for text, _ in live]
    assert [found.score for found in result.hypotheses] == pytest.approx([score for _, score in live])
    assert {found.stopped for found in result.hypotheses} == {Stopped.LENGTH}


def test_greedy_writes_the_likeliest_token_each_time():
    net, prompt, told = network("learned"), [3, 8, 1], []
    for _ in range(6):
        with torch.no_grad():
            told.append(int(net(torch.tensor([[*prompt, *told]])).logits[0, -1].argmax()))
    result = next(generate(net, [Given(prompt)], Settings(limit=6)))
    assert list(result.tokens) == told
    assert result.score == pytest.approx(log_probability(net, prompt, told))
    assert sum(result.token_scores) == pytest.approx(result.score)


def test_tokens_are_drawn_as_often_as_they_are_likely():
    """Chi-square of 4,000 first tokens and of the pairs behind the likeliest; with a fixed seed it is one number."""
    net, prompt, count = tiny(5), [2], 4000
    settings = Settings(search=Sample(seed=3, count=count), limit=2)
    found = next(generate(net, [Given(prompt)], settings, at_once=AtOnce(rows=count)))
    found = [one.tokens for one in found.hypotheses]
    observed = dict.fromkeys(itertools.product(range(WORDS_OF_TINY), repeat=2), 0)
    for pair in found:
        observed[pair] += 1
    expected = {pair: count * math.exp(log_probability(net, prompt, pair)) for pair in observed}
    assert sum(expected.values()) == pytest.approx(count)
    squares = sum((observed[pair] - expected[pair]) ** 2 / expected[pair] for pair in observed)
    assert squares < 30.58  # 15 degrees of freedom: larger by chance once in a hundred seeds


def test_drawing_is_the_inverse_of_the_distribution():
    logits = torch.tensor([[0.0, -torch.inf, math.log(3), -torch.inf]], dtype=torch.float64)
    at = torch.tensor([0.0, 0.2499, 0.2501, 0.9999999], dtype=torch.float64)
    assert draw(logits.expand(4, -1), at).tolist() == [0, 0, 2, 2]


def test_another_seed_another_text_and_the_same_seed_the_same():
    def told(seed, count=4):
        return [
            found.tokens
            for found in next(
                generate(network("rotary"), [Given([1, 2])], Settings(search=Sample(seed=seed, count=count), limit=8))
            ).hypotheses
        ]

    assert told(1) == told(1)
    assert told(1)[:2] == told(1, count=2)
    assert len({*told(1), *told(2)}) == 8


def test_chance_is_the_texts_own():
    """Neither its place nor its neighbours change what is drawn for a text; the same text is drawn the same."""
    settings = Settings(search=Sample(seed=1), limit=6)
    first, second, third = generate(network("rotary"), [Given([1, 2]), Given([5]), Given([1, 2])], settings)
    assert first.tokens == third.tokens
    assert next(generate(network("rotary"), [Given([5])], settings)).tokens == second.tokens


@pytest.mark.parametrize("count", [1, 5, 9])
@pytest.mark.parametrize("vocabulary", [40, 64 * 40, 64 * 40 + 17])
def test_the_best_tokens_are_those_of_topk(count, vocabulary):
    scores = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(vocabulary), dtype=torch.float64)
    scores[0, -3:] += 10  # in the rest behind the last whole chunk
    scores[1, 5:9] += 10  # all in one chunk
    values, tokens = top(scores, count)
    expected = scores.topk(count)
    assert torch.equal(values, expected.values)
    assert torch.equal(tokens, expected.indices)


def test_when_the_rules_leave_nothing_the_text_says_so():
    """Every word may be written once: after the last there is none."""
    net = tiny(1)
    for search in (Greedy(), Sample(seed=1), Beam(size=2)):
        result = next(generate(net, [Given([0])], Settings(search=search, rules=[NoRepeat(1)], limit=9)))
        assert result.stopped is Stopped.STUCK
        assert sorted(result.tokens) == [1, 2, 3]
    nothing = Settings(rules=[Forbid([[token] for token in range(WORDS_OF_TINY)])], limit=9)
    assert next(generate(net, [Given([0])], nothing)).tokens == ()


def test_a_beam_larger_than_the_vocabulary_is_no_error():
    result = next(generate(tiny(1), [Given([0])], Settings(search=Beam(size=30, best=30), end=[END], limit=2)))
    assert 1 < len(result.hypotheses) <= 1 + 3 * 4
    assert len({found.tokens for found in result.hypotheses}) == len(result.hypotheses)
    assert all(math.isfinite(found.score) for found in result.hypotheses)


@pytest.mark.parametrize("wrong", [dict(size=0, best=0), dict(size=2, best=3), dict(size=0)])
def test_beams_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="hypotheses, found best="):
        Beam(**wrong)


def test_samples_that_cannot_be():
    with pytest.raises(ValueError, match="once or more often"):
        Sample(seed=1, count=0)


def test_damaged_weights_are_an_error_not_a_text():
    net = tiny(1)
    with torch.no_grad():
        net.head.output.weight[0, 0] = torch.nan
    for search in (Greedy(), Sample(seed=1), Beam(size=2)):
        with pytest.raises(ValueError, match="its weights are damaged"):
            list(generate(net, [Given([0])], Settings(search=search, rules=[TopK(2)], limit=2)))
