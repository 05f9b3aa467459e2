"""Search strategies against their definitions: an exhaustive search over all sequences."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from unit.generation.networks import network
from unit.transformer.small_networks import EMBEDDING, WORDS, decoder_only, made

from regard.generation import (
    BatchSize,
    BeamSearch,
    DecodingOptions,
    EarlyStopping,
    GreedySearch,
    Inputs,
    NoRepeatNgram,
    RandomSampling,
    StopReason,
    SuppressSequences,
    TopK,
    generate,
)
from regard.generation.search import sample_tokens
from regard.generation.topk import chunked_topk
from regard.transformer import config

VOCABULARY, EOS, MAX_NEW_TOKENS = 4, 3, 3


def tiny(seed):
    """A network with a vocabulary of four tokens, one of which is EOS."""
    design = decoder_only("rotary", replace(WORDS, vocabulary=VOCABULARY), layers=1)
    tokens = config.Tokens(vocabulary=VOCABULARY, padding=0)
    return made(replace(design, embedding=replace(EMBEDDING, tokens=tokens)), seed)


def all_outputs():
    """All possible outputs: ended by EOS, or of the maximum length."""
    words = range(VOCABULARY - 1)
    for length in range(MAX_NEW_TOKENS):
        for prefix in itertools.product(words, repeat=length):
            yield (*prefix, EOS)
    yield from itertools.product(words, repeat=MAX_NEW_TOKENS)


@torch.no_grad()
def log_probability(network, prompt, output):
    log_probs = network(torch.tensor([[*prompt, *output]])).logits[0].log_softmax(-1)
    return sum(float(log_probs[position, token]) for position, token in enumerate(output, len(prompt) - 1))


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.8, -0.5])
@pytest.mark.parametrize("early_stopping", [EarlyStopping.HEURISTIC, EarlyStopping.NEVER])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_beam_as_wide_as_the_search_space_ranks_all_outputs(seed, early_stopping, penalty):
    net, prompt = tiny(seed), [1, 0]
    ranked = sorted(
        ((log_probability(net, prompt, output) / len(output) ** penalty, output) for output in all_outputs()),
        reverse=True,
    )
    beam = len(ranked)
    options = DecodingOptions(
        search=BeamSearch(beam=beam, n_best=beam, length_penalty=penalty, early_stopping=early_stopping),
        eos_token_ids=[EOS],
        max_new_tokens=MAX_NEW_TOKENS,
    )
    result = next(generate(net, [Inputs(prompt)], options))
    assert result.tokens == ranked[0][1]
    assert [hypothesis.tokens for hypothesis in result.hypotheses] == [output for _, output in ranked]
    assert [hypothesis.score for hypothesis in result.hypotheses] == pytest.approx([score for score, _ in ranked])


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_a_narrow_beam_follows_the_best_of_each_step(beam):
    """The definition: sort all continuations of all sequences, keep the best."""
    net, prompt = network("rotary"), [4, 9]
    active = [((), 0.0)]
    for _ in range(5):
        candidates = []
        for tokens, score in active:
            with torch.no_grad():
                log_probs = net(torch.tensor([[*prompt, *tokens]])).logits[0, -1].log_softmax(-1).tolist()
            candidates += [((*tokens, token), score + log_prob) for token, log_prob in enumerate(log_probs)]
        active = sorted(candidates, key=lambda candidate: -candidate[1])[:beam]
    options = DecodingOptions(search=BeamSearch(beam=beam, n_best=beam, length_penalty=0.0), max_new_tokens=5)
    result = next(generate(net, [Inputs(prompt)], options))
    assert [hypothesis.tokens for hypothesis in result.hypotheses] == [tokens for tokens, _ in active]
    assert [hypothesis.score for hypothesis in result.hypotheses] == pytest.approx([score for _, score in active])
    assert {hypothesis.stopped for hypothesis in result.hypotheses} == {StopReason.LENGTH}


def test_greedy_search_takes_the_argmax():
    net, prompt, expected = network("learned"), [3, 8, 1], []
    for _ in range(6):
        with torch.no_grad():
            expected.append(int(net(torch.tensor([[*prompt, *expected]])).logits[0, -1].argmax()))
    result = next(generate(net, [Inputs(prompt)], DecodingOptions(max_new_tokens=6)))
    assert list(result.tokens) == expected
    assert result.score == pytest.approx(log_probability(net, prompt, expected))
    assert sum(result.token_scores) == pytest.approx(result.score)


def test_tokens_are_sampled_with_their_probabilities():
    """Chi-square test of 4,000 pairs of tokens; the seed is fixed, so the test statistic is too."""
    net, prompt, count = tiny(5), [2], 4000
    options = DecodingOptions(search=RandomSampling(seed=3, num_samples=count), max_new_tokens=2)
    result = next(generate(net, [Inputs(prompt)], options, batch_size=BatchSize(sequences=count)))
    observed = dict.fromkeys(itertools.product(range(VOCABULARY), repeat=2), 0)
    for hypothesis in result.hypotheses:
        observed[hypothesis.tokens] += 1
    expected = {pair: count * math.exp(log_probability(net, prompt, pair)) for pair in observed}
    assert sum(expected.values()) == pytest.approx(count)
    statistic = sum((observed[pair] - expected[pair]) ** 2 / expected[pair] for pair in observed)
    assert statistic < 30.58  # 15 degrees of freedom, significance level 0.01


def test_sampling_inverts_the_cumulative_distribution():
    logits = torch.tensor([[0.0, -torch.inf, math.log(3), -torch.inf]], dtype=torch.float64)
    uniforms = torch.tensor([0.0, 0.2499, 0.2501, 0.9999999], dtype=torch.float64)
    assert sample_tokens(logits.expand(4, -1), uniforms).tolist() == [0, 0, 2, 2]


def test_the_seed_determines_the_samples():
    def samples(seed, count=4):
        return [
            hypothesis.tokens
            for hypothesis in next(
                generate(
                    network("rotary"),
                    [Inputs([1, 2])],
                    DecodingOptions(search=RandomSampling(seed=seed, num_samples=count), max_new_tokens=8),
                )
            ).hypotheses
        ]

    assert samples(1) == samples(1)
    assert samples(1)[:2] == samples(1, count=2)
    assert len({*samples(1), *samples(2)}) == 8


def test_samples_depend_on_the_input_alone():
    """Neither its index nor the other inputs of the batch matter; the same input gives the same sample."""
    options = DecodingOptions(search=RandomSampling(seed=1), max_new_tokens=6)
    first, second, third = generate(network("rotary"), [Inputs([1, 2]), Inputs([5]), Inputs([1, 2])], options)
    assert first.tokens == third.tokens
    assert next(generate(network("rotary"), [Inputs([5])], options)).tokens == second.tokens


@pytest.mark.parametrize("k", [1, 5, 9])
@pytest.mark.parametrize("vocabulary", [40, 64 * 40, 64 * 40 + 17])
def test_chunked_topk_is_torch_topk(k, vocabulary):
    scores = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(vocabulary), dtype=torch.float64)
    scores[0, -3:] += 10  # after the last whole chunk
    scores[1, 5:9] += 10  # all in one chunk
    values, tokens = chunked_topk(scores, k)
    expected = scores.topk(k)
    assert torch.equal(values, expected.values)
    assert torch.equal(tokens, expected.indices)


def test_generation_stops_when_every_token_is_masked():
    """Every token may occur once; after the last one, all are masked."""
    net = tiny(1)
    for search in (GreedySearch(), RandomSampling(seed=1), BeamSearch(beam=2)):
        result = next(
            generate(
                net,
                [Inputs([0])],
                DecodingOptions(search=search, logits_processors=[NoRepeatNgram(1)], max_new_tokens=9),
            )
        )
        assert result.stopped is StopReason.NO_TOKEN
        assert sorted(result.tokens) == [1, 2, 3]
    nothing = DecodingOptions(
        logits_processors=[SuppressSequences([[token] for token in range(VOCABULARY)])], max_new_tokens=9
    )
    assert next(generate(net, [Inputs([0])], nothing)).tokens == ()


def test_a_beam_may_be_larger_than_the_vocabulary():
    result = next(
        generate(
            tiny(1),
            [Inputs([0])],
            DecodingOptions(search=BeamSearch(beam=30, n_best=30), eos_token_ids=[EOS], max_new_tokens=2),
        )
    )
    assert 1 < len(result.hypotheses) <= 1 + 3 * 4
    assert len({hypothesis.tokens for hypothesis in result.hypotheses}) == len(result.hypotheses)
    assert all(math.isfinite(hypothesis.score) for hypothesis in result.hypotheses)


@pytest.mark.parametrize("wrong", [dict(beam=0, n_best=0), dict(beam=2, n_best=3), dict(beam=0)])
def test_invalid_beams_are_refused(wrong):
    with pytest.raises(ValueError, match="n_best must be between 1 and beam="):
        BeamSearch(**wrong)


def test_invalid_sample_counts_are_refused():
    with pytest.raises(ValueError, match="num_samples must be at least 1"):
        RandomSampling(seed=1, num_samples=0)


def test_damaged_weights_are_an_error():
    net = tiny(1)
    with torch.no_grad():
        net.head.output.weight[0, 0] = torch.nan
    for search in (GreedySearch(), RandomSampling(seed=1), BeamSearch(beam=2)):
        with pytest.raises(ValueError, match="logits contain NaN or infinity: the weights are damaged"):
            list(
                generate(
                    net, [Inputs([0])], DecodingOptions(search=search, logits_processors=[TopK(2)], max_new_tokens=2)
                )
            )
