"""IBM Model 1: the vectorised EM iterations against a plain implementation with loops."""

import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from regard import transformer_2017
from regard.data.example import Pair
from regard.engine import Precision, compile
from regard.engine.shortlist_head import ShortlistEncoderDecoder
from regard.generation import DecodingOptions, Inputs, generate
from regard.tasks import word_alignment
from regard.tasks.word_alignment import ParallelBatch, ShortlistOptions, learn_shortlist, translation_probabilities
from regard.tokenization.algorithms import WordLevel
from regard.tokenization.tokenizer_trainer import train_tokenizer
from regard.transformer import build


def corpus(seed, count=30, tokens=9, max_length=5):
    """Pairs of lines; some are empty on one side or on both."""
    rng = random.Random(seed)
    return [
        tuple([rng.randrange(tokens) for _ in range(rng.randint(0, max_length))] for _ in "st") for _ in range(count)
    ]


def batch(pairs):
    sides = []
    for side in zip(*pairs, strict=True):
        sides += [np.array([token for row in side for token in row], np.int64), np.array([len(row) for row in side])]
    return ParallelBatch(*sides)


def model_1(pairs, iterations):
    """IBM Model 1 as in the textbook. None is NULL."""
    probability = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = Counter(), Counter()
        for source, target in pairs:
            for t in target:
                norm = sum(probability[s, t] for s in [*source, None])
                for s in [*source, None]:
                    counts[s, t] += probability[s, t] / norm
                    totals[s] += probability[s, t] / norm
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return probability


def test_each_target_token_is_paired_with_every_source_token_of_its_line():
    pairs = [([1, 2], [5, 6]), ([], [7]), ([3], []), ([4], [8, 5])]
    sources, targets, starts = batch(pairs).token_pairs(9)
    found = list(zip(sources.tolist(), targets.tolist(), strict=True))
    assert found == [(s, t) for source, target in pairs for t in target for s in [*source, 9]]
    assert starts.tolist() == [0, 3, 6, 7, 9]


@pytest.mark.parametrize("iterations", [1, 2, 4])
@pytest.mark.parametrize("pending", [1, 10**6])
def test_the_iterations_are_those_of_model_1(iterations, pending, monkeypatch):
    monkeypatch.setattr(word_alignment, "MAX_PENDING_COUNTS", pending)
    pairs = corpus(iterations)
    batches = [batch(pairs[:11]), batch(pairs[11:12]), batch(pairs[12:])]
    keys, probabilities = translation_probabilities(batches, (9, 9), iterations)
    expected = {(9 if s is None else s) * 9 + t: p for (s, t), p in model_1(pairs, iterations).items()}
    assert dict(zip(keys.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(expected, rel=1e-9)


WORDS = [f"{a}{b}" for a in "bdfg" for b in "aei"]
SIDES = ("source", "target")


def sentences(count, seed=0):
    """Parallel lines: the target is the source in capitals, word by word."""
    rng = random.Random(seed)
    sources = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3))) for _ in range(count)]
    return [Pair(source=line, target=line.upper(), file=Path("made"), line=n) for n, line in enumerate(sources, 1)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(
        WordLevel(size=100), [text for pair in sentences(300) for text in (pair.source, pair.target)]
    )


def test_a_shortlist_has_the_best_and_the_most_frequent_tokens(tokenizer):
    pairs, size = sentences(300), len(tokenizer)
    shortlist = learn_shortlist(pairs, tokenizer, (size, size), ShortlistOptions(top_k=2, num_frequent=3))
    counts = Counter(token for pair in pairs for token in tokenizer.encode(pair.target, add_special_tokens=False).ids)
    assert [counts[token] for token in shortlist.frequent.tolist()] == sorted(counts.values())[-3:][::-1]
    for word in WORDS:
        token = tokenizer.encode(word, add_special_tokens=False).ids[0]
        targets = shortlist.targets[shortlist.starts[token] : shortlist.starts[token + 1]].tolist()
        assert len(targets) == 2
        assert tokenizer.decode([targets[0]]) == word.upper()


def test_a_large_corpus_is_subsampled(tokenizer, monkeypatch):
    monkeypatch.setattr(word_alignment, "LINES_PER_BATCH", 10)
    calls = []
    original = translation_probabilities
    monkeypatch.setattr(
        word_alignment,
        "translation_probabilities",
        lambda batches, *args: calls.append(batches) or original(batches, *args),
    )
    size = len(tokenizer)
    learn_shortlist(sentences(100), tokenizer, (size, size), ShortlistOptions(max_lines=30))
    assert sum(len(each.target_lengths) for each in calls[0]) == 30


def test_empty_lines_are_refused(tokenizer):
    pairs = [Pair(source="ba", target="", file=Path("made"), line=1)]
    with pytest.raises(ValueError, match="cannot learn a shortlist: all lines are empty"):
        learn_shortlist(pairs, tokenizer, (len(tokenizer), len(tokenizer)))


@pytest.fixture(scope="module")
def trained(tokenizer):
    """A small Transformer that was trained on this language pair."""
    size, pairs = len(tokenizer), sentences(512, seed=5)
    start, end = tokenizer.special_ids.bos, tokenizer.special_ids.eos
    network = build(transformer_2017(vocabulary=size, layers=(1, 1), model_dim=32, heads=4, dropout=0.0), seed=1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    rng = random.Random(1)
    for _ in range(40):
        sample = rng.sample(pairs, 24)
        sides = [
            tokenizer.encode_batch_ids([getattr(pair, side) for pair in sample], add_special_tokens=False)
            for side in SIDES
        ]
        source, target, labels = (
            torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-1)
            for rows in (sides[0], [[start, *row] for row in sides[1]], [[*row, end] for row in sides[1]])
        )
        logits = network(source.clamp_min(0), target.clamp_min(0), source >= 0, target >= 0).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    return network.eval()


@pytest.mark.parametrize("precision", [None, *Precision])
def test_a_trained_network_translates_the_same_with_shortlists(trained, tokenizer, precision):
    """Nearly all new texts have the same translation as without shortlists, with a quarter of the vocabulary."""
    size, (start, end) = len(tokenizer), (tokenizer.special_ids.bos, tokenizer.special_ids.eos)
    shortlist = learn_shortlist(sentences(300), tokenizer, (size, size), ShortlistOptions(top_k=2, num_frequent=1))
    network = trained if precision is None else compile(trained, precision)
    pairs = sentences(64, seed=77)
    sources = tokenizer.encode_batch_ids([pair.source for pair in pairs], add_special_tokens=False)
    inputs, options = [Inputs([start], ids) for ids in sources], DecodingOptions(eos_token_ids=[end], max_new_tokens=9)
    with_shortlist, without = (
        [tokenizer.decode(result.tokens) for result in generate(tested, inputs, options)]
        for tested in (ShortlistEncoderDecoder(network, shortlist, [end]), network)
    )
    correct = [
        sum(text == pair.target for text, pair in zip(texts, pairs, strict=True)) for texts in (with_shortlist, without)
    ]
    assert sum(map(str.__eq__, with_shortlist, without)) >= 0.9 * len(pairs)
    assert correct[0] >= correct[1] > 0.5 * len(pairs)
    assert word_alignment.mean_shortlist_length(pairs, tokenizer, shortlist) < 0.25 * size
