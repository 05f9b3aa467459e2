"""Which tokens go with which: the vectorised rounds against the model written out with loops."""

import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import transformer_2017
from regard.data.example import Pair
from regard.engine import Precision, prepare
from regard.engine.shortlist_head import Listed
from regard.generation import Given, Settings, generate
from regard.tasks import word_alignment
from regard.tasks.word_alignment import Lexicon, Lines, learn, probabilities
from regard.tokenization.algorithms import Words
from regard.tokenization.tokenizer_trainer import train
from regard.transformer import build


def corpus(seed, count=30, tokens=9, most=5):
    """Pairs of lines; some are empty on one side or on both."""
    draw = random.Random(seed)
    return [tuple([draw.randrange(tokens) for _ in range(draw.randint(0, most))] for _ in "st") for _ in range(count)]


def lines(pairs):
    sides = []
    for side in zip(*pairs, strict=True):
        sides += [np.array([token for row in side for token in row], np.int64), np.array([len(row) for row in side])]
    return Lines(*sides)


def defined(pairs, rounds):
    """IBM's first model, as it is in the book. None is nothing."""
    chance = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        shares, totals = Counter(), Counter()
        for source, target in pairs:
            for t in target:
                whole = sum(chance[s, t] for s in [*source, None])
                for s in [*source, None]:
                    shares[s, t] += chance[s, t] / whole
                    totals[s] += chance[s, t] / whole
        chance = {(s, t): share / totals[s] for (s, t), share in shares.items()}
    return chance


def test_each_token_is_paired_with_every_one_of_its_line():
    pairs = [([1, 2], [5, 6]), ([], [7]), ([3], []), ([4], [8, 5])]
    sources, targets, begins = lines(pairs).pairs(9)
    found = list(zip(sources.tolist(), targets.tolist(), strict=True))
    assert found == [(s, t) for source, target in pairs for t in target for s in [*source, 9]]
    assert begins.tolist() == [0, 3, 6, 7, 9]


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("pending", [1, 10**6])
def test_the_rounds_are_those_of_the_model(rounds, pending, monkeypatch):
    monkeypatch.setattr(word_alignment, "PENDING", pending)
    pairs = corpus(rounds)
    keys, found = probabilities([lines(pairs[:11]), lines(pairs[11:12]), lines(pairs[12:])], (9, 9), rounds)
    expected = {(9 if s is None else s) * 9 + t: chance for (s, t), chance in defined(pairs, rounds).items()}
    assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == pytest.approx(expected, rel=1e-9)


WORDS = [f"{a}{b}" for a in "bdfg" for b in "aei"]


PARTS = ("source", "target")


def sentences(count, seed=0):
    """A language whose words are those of another, in capitals, one by one."""
    draw = random.Random(seed)
    chosen = [[draw.choice(WORDS) for _ in range(draw.randint(1, 3))] for _ in range(count)]
    texts = [(" ".join(words), " ".join(word.upper() for word in words)) for words in chosen]
    return [Pair(source=one, target=other, file=Path("made"), line=n) for n, (one, other) in enumerate(texts, 1)]


@pytest.fixture(scope="module")
def tokenizer():
    return train(Words(size=100), [text for pair in sentences(300) for text in (pair.source, pair.target)])


def test_the_best_and_the_most_frequent_are_listed(tokenizer):
    pairs, size = sentences(300), len(tokenizer)
    shortlist = learn(pairs, tokenizer, (size, size), Lexicon(best=2, frequent=3))
    counts = Counter(token for pair in pairs for token in tokenizer.encode(pair.target, special_tokens=False).ids)
    assert [counts[token] for token in shortlist.frequent.tolist()] == sorted(counts.values())[-3:][::-1]
    for word in WORDS:
        token = tokenizer.encode(word, special_tokens=False).ids[0]
        mine = shortlist.targets[shortlist.starts[token] : shortlist.starts[token + 1]].tolist()
        assert len(mine) == 2
        assert tokenizer.decode([mine[0]]) == word.upper()


def test_of_too_many_lines_some_are_taken(tokenizer, monkeypatch):
    monkeypatch.setattr(word_alignment, "LINES", 10)
    read = []
    count = probabilities
    monkeypatch.setattr(word_alignment, "probabilities", lambda some, *rest: read.append(some) or count(some, *rest))
    size = len(tokenizer)
    learn(sentences(100), tokenizer, (size, size), Lexicon(lines=30))
    assert sum(len(some.target_lengths) for some in read[0]) == 30


def test_nothing_to_learn_from_is_said(tokenizer):
    nothing = [Pair(source="ba", target="", file=Path("made"), line=1)]
    with pytest.raises(ValueError, match="no lines to learn a shortlist from"):
        learn(nothing, tokenizer, (len(tokenizer), len(tokenizer)))


@pytest.fixture(scope="module")
def trained(tokenizer):
    """A small Transformer that has learnt the language."""
    size, pairs = len(tokenizer), sentences(512, seed=5)
    start, end = tokenizer.special.begin, tokenizer.special.end
    network = build(transformer_2017(vocabulary=size, layers=(1, 1), model_dim=32, heads=4, dropout=0.0), seed=1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    draw = random.Random(1)
    for _ in range(40):
        some = draw.sample(pairs, 24)
        sides = [tokenizer.ids_of([getattr(pair, side) for pair in some], special_tokens=False) for side in PARTS]
        source, given, expected = (
            torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-1)
            for rows in (sides[0], [[start, *row] for row in sides[1]], [[*row, end] for row in sides[1]])
        )
        logits = network(source.clamp_min(0), given.clamp_min(0), source >= 0, given >= 0).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten(), ignore_index=-1)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    return network.eval()


@pytest.mark.parametrize("precision", [None, *Precision])
def test_a_trained_network_writes_the_same_with_short_lists(trained, tokenizer, precision):
    """New texts: nearly all of them are translated as without lists, and no worse, with a quarter of the vocabulary."""
    size, (start, end) = len(tokenizer), (tokenizer.special.begin, tokenizer.special.end)
    shortlist = learn(sentences(300), tokenizer, (size, size), Lexicon(best=2, frequent=1))
    network = trained if precision is None else prepare(trained, precision)
    pairs = sentences(64, seed=77)
    given = [Given([start], row) for row in tokenizer.ids_of([pair.source for pair in pairs], special_tokens=False)]
    settings = Settings(end=[end], limit=9)
    short, own = (
        [tokenizer.decode(result.tokens) for result in generate(one, given, settings)]
        for one in (Listed(network, shortlist, [end]), network)
    )
    right = [sum(said == pair.target for said, pair in zip(all_of, pairs, strict=True)) for all_of in (short, own)]
    assert sum(one == other for one, other in zip(short, own, strict=True)) >= 0.9 * len(pairs)
    assert right[0] >= right[1] > 0.5 * len(pairs)
    assert word_alignment.usual_length(pairs, tokenizer, shortlist) < 0.25 * size
