"""Inputs, limits, batches, attention, and forced decoding."""

import math

import pytest
import torch
from unit.generation.networks import KINDS, network, translates
from unit.transformer.small_networks import ROOM, decoder_only, encoder_decoder, encoder_only, made

from regard.generation import (
    BatchSize,
    BeamSearch,
    DecodingOptions,
    ForcedEos,
    GreedySearch,
    Inputs,
    MinNewTokens,
    OverlongInput,
    RandomSampling,
    StopReason,
    generate,
    score,
)
from regard.generation.inputs import DEFAULT_MAX_NEW_TOKENS, MAX_LEN_A, MAX_LEN_B, prepare_inputs
from regard.generation.running_batch import RunningBatch
from regard.transformer.activation_capture import capture

CROSS, SELF = "decoder.blocks.0.cross_attention", "decoder.blocks.0.attention"


def generate_one(kind, inputs, **options):
    return next(generate(network(kind), [inputs], DecodingOptions(**options)))


def limit(kind, inputs, max_new_tokens=None):
    return prepare_inputs(network(kind), 0, inputs, max_new_tokens, OverlongInput.ERROR).max_new_tokens


def test_the_limit_follows_from_the_network_and_the_input():
    assert limit("learned", Inputs([1] * 5)) == ROOM - 5
    assert limit("learned", Inputs([1] * 5), max_new_tokens=3) == 3
    assert limit("learned", Inputs([1] * 5), max_new_tokens=10 * ROOM) == ROOM - 5
    assert limit("rotary", Inputs([1] * 5)) == ROOM - 5
    assert limit("rotary", Inputs([1] * 5), max_new_tokens=10 * ROOM) == 10 * ROOM
    assert limit("buckets", Inputs([1])) == DEFAULT_MAX_NEW_TOKENS
    assert limit("memory", Inputs([1])) == limit("two streams", Inputs([1])) == DEFAULT_MAX_NEW_TOKENS
    assert limit("translating", Inputs([1, 2], [3] * 4)) == min(ROOM - 2, 4 * MAX_LEN_A + MAX_LEN_B)


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(beam=3), RandomSampling(seed=1, num_samples=2)])
def test_with_a_buffer_of_one_each_input_is_finished_before_the_next_is_read(search):
    """The beams or samples of one input count as one."""
    events = []

    def typed():
        for index in range(3):
            events.append(f"read {index}")
            yield Inputs([3 + index, 4])

    for result in generate(
        network("learned"), typed(), DecodingOptions(search=search, max_new_tokens=3), buffer_size=1
    ):
        events.append(f"result {result.index}")
    assert events == ["read 0", "result 0", "read 1", "result 1", "read 2", "result 2"]


def test_the_limit_can_be_reached():
    """The last position is used, and none beyond it."""
    result = generate_one("learned", Inputs([4, 4]))
    assert (len(result.tokens), result.max_new_tokens, result.stopped) == (ROOM - 2, ROOM - 2, StopReason.LENGTH)


LONG = list(range(20)) * 3
WRONG = [
    ("rotary", Inputs([]), {}, "the prompt of input 1 is empty"),
    ("translating", Inputs([1], []), {}, "the source of input 1 is empty"),
    ("translating", Inputs([1]), {}, "has no source, but this network has an encoder"),
    ("rotary", Inputs([1], [2]), {}, "has a source, but this network has no encoder"),
    ("rotary", Inputs([1, 23]), {}, "has token id 23, outside the vocabulary of 23 tokens"),
    ("translating", Inputs([1], [5, -1]), {}, "has token id -1, outside the vocabulary"),
    ("learned", Inputs(LONG), {}, "the prompt of input 1 has 60 tokens and the network only 40 positions"),
    ("translating", Inputs([1], LONG), {}, "the source of input 1 has 60 tokens, but the network has 40 positions"),
    ("rotary", Inputs(LONG), {}, "has 60 tokens and the context length is 40: shorten it, or set max_new_tokens"),
    ("rotary", Inputs([1]), dict(max_new_tokens=0), "max_new_tokens must be at least 1, found 0"),
    (
        "rotary",
        Inputs([1]),
        dict(logits_processors=[MinNewTokens(9, [2])], max_new_tokens=5),
        "min_new_tokens=9 exceeds max_new_tokens=5",
    ),
    ("rotary", Inputs([1]), dict(capture=["encoder.blocks.0.attention"]), "only decoder attention can be captured"),
    ("rotary", Inputs([1]), dict(capture=["decoder.blocks.9.attention"]), "there is nothing to capture at"),
]


@pytest.mark.parametrize(("kind", "inputs", "options", "message"), WRONG, ids=[message[:40] for *_, message in WRONG])
def test_invalid_inputs_and_options_are_refused(kind, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        generate_one(kind, inputs, **options)


def test_the_error_names_the_input():
    inputs = [Inputs([1]), Inputs([2]), Inputs([])]
    with pytest.raises(ValueError, match="the prompt of input 3 is empty"):
        list(generate(network("rotary"), inputs, DecodingOptions(max_new_tokens=2)))


def test_networks_that_cannot_generate_are_refused():
    with pytest.raises(ValueError, match="EncoderOnly cannot generate: it has no decoder"):
        generate(made(encoder_only()), [], DecodingOptions())
    with pytest.raises(ValueError, match="it has no language modelling head"):
        generate(made(decoder_only()), [], DecodingOptions())
    with pytest.raises(ValueError, match="in training mode"):
        generate(made(decoder_only(head=network("rotary").config.head)).train(), [], DecodingOptions())


def test_truncated_tokens_are_counted():
    prompt = generate_one("learned", Inputs(LONG), max_new_tokens=6, overlong_input=OverlongInput.TRUNCATE)
    assert prompt.truncated == 60 - (ROOM - 6)
    assert prompt.tokens == generate_one("learned", Inputs(LONG[-(ROOM - 6) :]), max_new_tokens=6).tokens
    source = generate_one("translating", Inputs([1], LONG), max_new_tokens=6, overlong_input=OverlongInput.TRUNCATE)
    assert source.truncated == 60 - ROOM
    assert (
        source.tokens
        == generate_one("translating", Inputs([1], [*LONG[: ROOM - 1], LONG[-1]]), max_new_tokens=6).tokens
    )
    assert generate_one("learned", Inputs([1]), max_new_tokens=6, overlong_input=OverlongInput.TRUNCATE).truncated == 0


def test_no_inputs_no_results():
    assert list(generate(network("rotary"), [], DecodingOptions())) == []


def test_finished_requests_leave_and_waiting_ones_join():
    """The network never gets more sequences than the batch size, and reads each token once."""
    net, lengths = network("rotary"), []
    hook = net.decoder.register_forward_pre_hook(lambda _, arguments: lengths.append(arguments[1].lengths))
    inputs = [Inputs([index % 20] * (1 + index % 4)) for index in range(12)]
    try:
        results = list(
            generate(
                net,
                inputs,
                DecodingOptions(eos_token_ids=[2, 5, 7], max_new_tokens=9),
                batch_size=BatchSize(sequences=4),
            )
        )
    finally:
        hook.remove()
    assert max(map(len, lengths)) == 4
    expected = [len(each.prompt) + len(result.tokens) - 1 for each, result in zip(inputs, results, strict=True)]
    assert sum(map(sum, lengths)) == sum(expected)


def test_the_batch_size_in_tokens_is_respected():
    inputs = [Inputs([1] * length) for length in (2, 8, 3, 5)]
    options = DecodingOptions(max_new_tokens=4)
    original, totals = RunningBatch.step, []

    def step(self):
        totals.append(sum(request.max_total_tokens for request in self.running))
        return original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningBatch, "step", step)
        results = list(generate(network("rotary"), inputs, options, batch_size=BatchSize(sequences=9, tokens=20)))
    assert [result.index for result in results] == [0, 1, 2, 3]
    assert max(totals) <= 20
    with pytest.raises(ValueError, match="at least 1 sequence"):
        BatchSize(sequences=0)


@pytest.mark.parametrize(
    "search", [GreedySearch(), RandomSampling(seed=2), BeamSearch(beam=3, n_best=3)], ids=["greedy", "sample", "beam"]
)
def test_captured_attention_is_that_of_the_step_that_generated_the_token(search):
    """For every hypothesis, also of a beam search: the same as in one forward pass over the whole sequence."""
    net = network("translating")
    inputs = [Inputs([1], [3, 4, 5, 6]), Inputs([1, 2], [7, 8]), Inputs([1], [9])]
    options = DecodingOptions(search=search, eos_token_ids=[2, 5], max_new_tokens=6, capture=[CROSS, SELF])
    for each, result in zip(inputs, generate(net, inputs, options), strict=True):
        for hypothesis in result.hypotheses:
            tokens = torch.tensor([[*each.prompt, *hypothesis.tokens]])
            with torch.no_grad(), capture(net, CROSS, SELF) as weights:
                net(torch.tensor([each.source]), tokens)
            start = len(each.prompt) - 1
            assert len(hypothesis.attention) == len(hypothesis.tokens)
            for position, step in enumerate(hypothesis.attention, start):
                torch.testing.assert_close(step[CROSS], weights[CROSS][0][:, position])
                torch.testing.assert_close(step[SELF], weights[SELF][0][:, position, : position + 1])
            new = slice(start, start + len(hypothesis.tokens))
            torch.testing.assert_close(hypothesis.mean_attention(CROSS), weights[CROSS][0][:, new].mean(dim=0))
            torch.testing.assert_close(hypothesis.mean_attention(heads=[1]), weights[CROSS][0][1, new])


def test_mean_attention_that_was_not_captured():
    result = generate_one("translating", Inputs([1], [3, 4]), max_new_tokens=4, capture=[SELF])
    with pytest.raises(ValueError, match="is not a cross-attention"):
        result.best.mean_attention()
    with pytest.raises(ValueError, match=r"was not captured; captured: decoder\.blocks\.0\.attention"):
        result.best.mean_attention(CROSS)
    with pytest.raises(ValueError, match="attention weights were not captured"):
        generate_one("translating", Inputs([1], [3, 4]), max_new_tokens=4).best.mean_attention()


@pytest.mark.parametrize("kind", KINDS)
def test_forced_decoding_gives_the_scores_of_generation(kind):
    source = [3, 4, 5] if translates(kind) else None
    inputs = [Inputs([1, 2], source), Inputs([7], source), Inputs([9, 8, 7, 6], source)]
    results = list(generate(network(kind), inputs, DecodingOptions(eos_token_ids=[2, 5], max_new_tokens=7)))
    pairs = [(each, result.tokens) for each, result in zip(inputs, results, strict=True)]
    for result, scored in zip(results, score(network(kind), pairs, batch_size=2), strict=True):
        assert scored.token_scores == pytest.approx(result.token_scores, abs=1e-9)
        assert scored.score == pytest.approx(result.score, abs=1e-9)


def test_probabilities_add_up_to_one():
    """Over all values of one token."""
    pairs = [(Inputs([1, 2]), [3, token]) for token in range(23)]
    scores = list(score(network("rotary"), pairs))
    assert sum(math.exp(each.token_scores[1]) for each in scores) == pytest.approx(1)
    assert len({each.token_scores[0] for each in scores}) <= 3


def test_invalid_outputs_are_not_scored():
    with pytest.raises(ValueError, match="output 2 is empty"):
        list(score(network("rotary"), [(Inputs([1]), [2]), (Inputs([1]), [])]))
    with pytest.raises(ValueError, match="so nothing can be generated"):
        list(score(network("learned"), [(Inputs([1] * 30), [2] * 30)]))


@torch.no_grad()
def test_a_memory_is_passed_from_token_to_token():
    """Transformer-XL as published: the prompt is one segment, and each new token is another."""
    net, prompt, expected = network("memory"), [3, 4, 5, 6, 7, 8, 9], []
    memory, tokens = net.new_cache(), torch.tensor([prompt])
    for _ in range(8):
        expected.append(int(net(tokens, cache=memory).logits[0, -1].argmax()))
        tokens = torch.tensor([expected[-1:]])
    assert list(generate_one("memory", Inputs(prompt), max_new_tokens=8).tokens) == expected


@torch.no_grad()
def test_bfloat16_networks_are_searched_in_float32():
    net = made(encoder_decoder("halves", network("rotary").config.head, layers=1)).to(torch.bfloat16)
    result = next(
        generate(
            net,
            [Inputs([1], [4, 5])],
            DecodingOptions(search=BeamSearch(beam=2), max_new_tokens=4, logits_processors=[ForcedEos(2)]),
        )
    )
    assert len(result.tokens) == 4


@pytest.mark.parametrize("name", ["rotary", "translating"])
def test_requests_are_prefilled_in_batches_and_join_one_by_one(name):
    """As many requests as the batch size are prefilled at a time, and no slot stays free while requests wait."""
    net, prefills, occupancy = network(name), [], []
    original_prefill, original_step = RunningBatch.prefill, RunningBatch.step

    def prefill(self, requests):
        prefills.append(len(requests))
        return original_prefill(self, requests)

    def step(self):
        occupancy.append((len(self.running), len(self.prefilled)))
        return original_step(self)

    inputs = [Inputs([1 + index % 7], [3 + index % 11, 4]) for index in range(12)]
    inputs = inputs if name == "translating" else [Inputs(each.prompt) for each in inputs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningBatch, "prefill", prefill)
        patch.setattr(RunningBatch, "step", step)
        list(
            generate(
                net,
                inputs,
                DecodingOptions(eos_token_ids=[2, 5, 7], max_new_tokens=9),
                batch_size=BatchSize(sequences=4),
            )
        )
    assert prefills == [4, 4, 4]
    assert all(running == 4 for running, prefilled in occupancy if prefilled)
