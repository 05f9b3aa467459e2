"""Inputs, limits, batches, attention, and forced decoding."""

import math

import pytest
import torch
from unit.generation.networks import KINDS, network, translates
from unit.transformer.small_networks import ROOM, decoder_only, encoder_decoder, encoder_only, made

from regard.generation import (
    AtOnce,
    Beam,
    EndAtLimit,
    Given,
    Greedy,
    MinLength,
    Sample,
    Settings,
    Stopped,
    TooLong,
    generate,
    score,
)
from regard.generation.inputs import BESIDES, TIMES_SOURCE, WITHOUT_END, admit
from regard.generation.running_batch import Batch
from regard.transformer.capture import watch

CROSS, OWN = "decoder.blocks.0.cross_attention", "decoder.blocks.0.attention"


def one(kind, text, **settings):
    return next(generate(network(kind), [text], Settings(**settings)))


def limit(kind, text, asked=None):
    return admit(network(kind), 0, text, asked, TooLong.REFUSE).limit


def test_the_limit_follows_from_the_network_and_the_input():
    assert limit("learned", Given([1] * 5)) == ROOM - 5
    assert limit("learned", Given([1] * 5), asked=3) == 3
    assert limit("learned", Given([1] * 5), asked=10 * ROOM) == ROOM - 5
    assert limit("rotary", Given([1] * 5)) == ROOM - 5
    assert limit("rotary", Given([1] * 5), asked=10 * ROOM) == 10 * ROOM
    assert limit("buckets", Given([1])) == WITHOUT_END
    assert limit("memory", Given([1])) == limit("two streams", Given([1])) == WITHOUT_END
    assert limit("translating", Given([1, 2], [3] * 4)) == min(ROOM - 2, 4 * TIMES_SOURCE + BESIDES)


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3), Sample(seed=1, count=2)])
def test_who_types_a_text_gets_its_result_before_the_next_is_read(search):
    """With a window of one text; a beam or several samples of it are one text."""
    told = []

    def typed():
        for number in range(3):
            told.append(f"read {number}")
            yield Given([3 + number, 4])

    for result in generate(network("learned"), typed(), Settings(search=search, limit=3), window=1):
        told.append(f"result {result.number}")
    assert told == ["read 0", "result 0", "read 1", "result 1", "read 2", "result 2"]


def test_the_limit_can_be_reached():
    """The last position is used, and no more."""
    result = one("learned", Given([4, 4]))
    assert (len(result.tokens), result.limit, result.stopped) == (ROOM - 2, ROOM - 2, Stopped.LENGTH)


LONG = list(range(20)) * 3
WRONG = [
    ("rotary", Given([]), {}, "the prompt of input 1 is empty"),
    ("translating", Given([1], []), {}, "the source of input 1 is empty"),
    ("translating", Given([1]), {}, "has no source, but this network has an encoder"),
    ("rotary", Given([1], [2]), {}, "has a source, but this network has no encoder"),
    ("rotary", Given([1, 23]), {}, "has token 23, but the vocabulary has 23"),
    ("translating", Given([1], [5, -1]), {}, "has token -1"),
    ("learned", Given(LONG), {}, "the prompt of input 1 has 60 tokens and leaves no room to write"),
    ("translating", Given([1], LONG), {}, "the source of input 1 has 60 tokens, but the network has learnt 40"),
    ("rotary", Given(LONG), {}, "has 60 tokens, and the network is made for 40: shorten it, or say with a limit"),
    ("rotary", Given([1]), dict(limit=0), "at least one token must be allowed"),
    ("rotary", Given([1]), dict(rules=[MinLength(9, [2])], limit=5), "at least 9 tokens, but there is room for 5"),
    ("rotary", Given([1]), dict(watch=["encoder.blocks.0.attention"]), "only attentions of a decoder"),
    ("rotary", Given([1]), dict(watch=["decoder.blocks.9.attention"]), "there is no attention at"),
]


@pytest.mark.parametrize(("kind", "text", "settings", "says"), WRONG, ids=[says[:40] for *_, says in WRONG])
def test_what_cannot_be_written_says_why(kind, text, settings, says):
    with pytest.raises(ValueError, match=says):
        one(kind, text, **settings)


def test_the_wrong_input_is_named():
    texts = [Given([1]), Given([2]), Given([])]
    with pytest.raises(ValueError, match="the prompt of input 3 is empty"):
        list(generate(network("rotary"), texts, Settings(limit=2)))


def test_networks_that_cannot_write_say_so():
    with pytest.raises(ValueError, match="EncoderOnly cannot write: it has no decoder"):
        generate(made(encoder_only()), [], Settings())
    with pytest.raises(ValueError, match="its head does not score words"):
        generate(made(decoder_only()), [], Settings())
    with pytest.raises(ValueError, match="in training mode"):
        generate(made(decoder_only(head=network("rotary").config.head)).train(), [], Settings())


def test_what_is_cut_is_counted():
    cut = one("learned", Given(LONG), limit=6, too_long=TooLong.CUT)
    assert cut.truncated == 60 - (ROOM - 6)
    assert cut.tokens == one("learned", Given(LONG[-(ROOM - 6) :]), limit=6).tokens
    source = one("translating", Given([1], LONG), limit=6, too_long=TooLong.CUT)
    assert source.truncated == 60 - ROOM
    assert source.tokens == one("translating", Given([1], [*LONG[: ROOM - 1], LONG[-1]]), limit=6).tokens
    assert one("learned", Given([1]), limit=6, too_long=TooLong.CUT).truncated == 0


def test_no_inputs_no_results():
    assert list(generate(network("rotary"), [], Settings())) == []


def test_finished_rows_leave_and_waiting_ones_enter():
    """The network never reads more rows than may be written at once, and each text is read once."""
    net, seen = network("rotary"), []
    hook = net.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[1].lengths))
    texts = [Given([number % 20] * (1 + number % 4)) for number in range(12)]
    try:
        found = list(generate(net, texts, Settings(end=[2, 5, 7], limit=9), at_once=AtOnce(rows=4)))
    finally:
        hook.remove()
    assert max(map(len, seen)) == 4
    read = [len(text.prompt) + len(result.tokens) - 1 for text, result in zip(texts, found, strict=True)]
    assert sum(map(sum, seen)) == sum(read)


def test_so_many_tokens_at_once():
    texts = [Given([1] * length) for length in (2, 8, 3, 5)]
    settings = Settings(limit=4)
    real, most = Batch.step, []

    def step(self):
        most.append(sum(text.places for text in self.texts))
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "step", step)
        batch = list(generate(network("rotary"), texts, settings, at_once=AtOnce(rows=9, tokens=20)))
    assert [result.number for result in batch] == [0, 1, 2, 3]
    assert max(most) <= 20
    with pytest.raises(ValueError, match="at least one row"):
        AtOnce(rows=0)


@pytest.mark.parametrize("search", [Greedy(), Sample(seed=2), Beam(size=3, best=3)], ids=["greedy", "sample", "beam"])
def test_attention_is_what_was_looked_at_when_the_token_was_chosen(search):
    """For every hypothesis, beams included: the same as when the whole text is read at once."""
    net = network("translating")
    texts = [Given([1], [3, 4, 5, 6]), Given([1, 2], [7, 8]), Given([1], [9])]
    settings = Settings(search=search, end=[2, 5], limit=6, watch=[CROSS, OWN])
    for text, result in zip(texts, generate(net, texts, settings), strict=True):
        for found in result.hypotheses:
            whole = torch.tensor([[*text.prompt, *found.tokens]])
            with torch.no_grad(), watch(net, CROSS, OWN) as seen:
                net(torch.tensor([text.source]), whole)
            begin = len(text.prompt) - 1
            assert len(found.attention) == len(found.tokens)
            for at, step in enumerate(found.attention):
                torch.testing.assert_close(step[CROSS], seen[CROSS][0][:, begin + at])
                torch.testing.assert_close(step[OWN], seen[OWN][0][:, begin + at, : begin + at + 1])
            lines = slice(begin, begin + len(found.tokens))
            torch.testing.assert_close(found.alignment(CROSS), seen[CROSS][0][:, lines].mean(dim=0))
            torch.testing.assert_close(found.alignment(heads=[1]), seen[CROSS][0][1, lines])


def test_alignments_that_cannot_be():
    result = one("translating", Given([1], [3, 4]), limit=4, watch=[OWN])
    with pytest.raises(ValueError, match="is no attention to a source"):
        result.best.alignment()
    with pytest.raises(ValueError, match="was not watched"):
        result.best.alignment(CROSS)
    with pytest.raises(ValueError, match="the attention was not kept"):
        one("translating", Given([1], [3, 4]), limit=4).best.alignment()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_is_scored_as_it_was_written(kind):
    source = [3, 4, 5] if translates(kind) else None
    texts = [Given([1, 2], source), Given([7], source), Given([9, 8, 7, 6], source)]
    written = list(generate(network(kind), texts, Settings(end=[2, 5], limit=7)))
    pairs = [(text, result.tokens) for text, result in zip(texts, written, strict=True)]
    for result, scored in zip(written, score(network(kind), pairs, rows_at_once=2), strict=True):
        assert scored.token_scores == pytest.approx(result.token_scores, abs=1e-9)
        assert scored.score == pytest.approx(result.score, abs=1e-9)


def test_all_outputs_together_are_certain():
    """The probabilities of all that one token may be add up to one."""
    pairs = [(Given([1, 2]), [3, token]) for token in range(23)]
    found = list(score(network("rotary"), pairs))
    assert sum(math.exp(one.token_scores[1]) for one in found) == pytest.approx(1)
    assert len({one.token_scores[0] for one in found}) <= 3


def test_scores_that_cannot_be():
    with pytest.raises(ValueError, match="the output of input 2 is empty"):
        list(score(network("rotary"), [(Given([1]), [2]), (Given([1]), [])]))
    with pytest.raises(ValueError, match="leaves no room"):
        list(score(network("learned"), [(Given([1] * 30), [2] * 30)]))


@torch.no_grad()
def test_a_memory_is_passed_from_token_to_token():
    """Transformer-XL as it was meant: the prompt is a segment, each token behind it another."""
    net, prompt, told = network("memory"), [3, 4, 5, 6, 7, 8, 9], []
    memory, tokens = net.new_cache(), torch.tensor([prompt])
    for _ in range(8):
        told.append(int(net(tokens, cache=memory).logits[0, -1].argmax()))
        tokens = torch.tensor([told[-1:]])
    assert list(one("memory", Given(prompt), limit=8).tokens) == told


@torch.no_grad()
def test_half_precision_is_ranked_in_single():
    net = made(encoder_decoder("halves", network("rotary").config.head, layers=1)).to(torch.bfloat16)
    result = next(generate(net, [Given([1], [4, 5])], Settings(search=Beam(size=2), limit=4, rules=[EndAtLimit(2)])))
    assert len(result.tokens) == 4


@pytest.mark.parametrize("name", ["rotary", "translating"])
def test_texts_are_begun_together_and_enter_one_by_one(name):
    """First tokens are read as many at a time as may be written at once, and no place stays free while texts wait."""
    net, firsts, places = network(name), [], []
    real_begin, real_step = Batch.begin, Batch.step

    def begin(self, texts):
        firsts.append(len(texts))
        return real_begin(self, texts)

    def step(self):
        places.append((len(self.texts), len(self.begun)))
        return real_step(self)

    texts = [Given([1 + number % 7], [3 + number % 11, 4]) for number in range(12)]
    texts = texts if name == "translating" else [Given(text.prompt) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "begin", begin)
        patch.setattr(Batch, "step", step)
        list(generate(net, texts, Settings(end=[2, 5, 7], limit=9), at_once=AtOnce(rows=4)))
    assert firsts == [4, 4, 4]
    assert all(written == 4 for written, begun in places if begun)
