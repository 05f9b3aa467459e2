"""A step of writing in one call, against the same network called part by part."""

import pytest
import torch
from torch import nn
from unit.engine.test_compiler import single
from unit.generation.networks import VOCABULARY, translates

from regard.engine import Precision, prepare
from regard.engine.decode_step import CompiledDecoderOnly, CompiledEncoderDecoder
from regard.native.library import available
from regard.transformer.batch_layout import Rows
from regard.transformer.network import DecoderOnly, EncoderDecoder

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no compiled parts")
KINDS = ["learned", "rotary", "buckets", "translating", "translating by waves"]
FIRST, BEGUN = torch.tensor([3, 4, 5, 6, 7]), Rows.of([3, 2])
ONE_EACH = Rows.of([1, 1])


class Writing:
    """A network that has begun two rows, and goes on with them."""

    def __init__(self, kind, precision=Precision.FP32):
        self.network, self.translates = prepare(single(kind), precision), translates(kind)
        self.base = EncoderDecoder if self.translates else DecoderOnly
        self.cache = self.network.new_cache()
        self.source = self.network.encode(torch.tensor([5, 6, 7]), rows=Rows.of([2, 1])) if self.translates else None
        self.read(FIRST, BEGUN)

    def read(self, tokens, rows=ONE_EACH, call=None):
        """The output for new tokens, by calling the network or another way."""
        call = call or self.network
        if self.translates:
            return call(self.source, tokens, target_rows=rows, cache=self.cache)
        return call(tokens, rows=rows, cache=self.cache)

    def part_by_part(self, *given, **named):
        return self.base.forward(self.network, *given, **named)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_one_call_says_what_its_parts_say(kind, precision, monkeypatch):
    quick, parts = Writing(kind, precision), Writing(kind, precision)
    assert isinstance(quick.network, CompiledDecoderOnly | CompiledEncoderDecoder)
    steps = [[8, 9], [1, 2], [5, 5]]
    expected = [parts.read(torch.tensor(tokens), call=parts.part_by_part) for tokens in steps]
    monkeypatch.setattr(quick.base, "forward", lambda *given, **named: pytest.fail("the parts were called"))
    for tokens, other in zip(steps, expected, strict=True):
        found = quick.read(torch.tensor(tokens))
        assert torch.equal(found.logits, other.logits)
        assert torch.equal(found.hidden, other.hidden)
        assert found.cache is quick.cache
        assert found.source is quick.source
    assert quick.cache.lengths == (6, 5)


@pytest.mark.parametrize("kind", ["learned", "translating by waves"])
@pytest.mark.parametrize("token", [-1, VOCABULARY])
@torch.inference_mode()
def test_after_a_token_that_is_none_the_cache_is_as_it_was(kind, token):
    found, other = Writing(kind), Writing(kind)
    with pytest.raises(IndexError, match=f"token {token} is not in a vocabulary of {VOCABULARY}"):
        found.read(torch.tensor([8, token]))
    assert found.cache.lengths == (3, 2)
    for tokens in [8, 9], [1, 2]:
        assert torch.equal(found.read(torch.tensor(tokens)).logits, other.read(torch.tensor(tokens)).logits)


@pytest.mark.parametrize("part", ["head", "head.matrix", "decoder", "decoder.blocks.0.feedforward"])
@torch.inference_mode()
def test_who_listens_to_a_part_hears_of_it(part):
    writing, heard = Writing("translating"), []
    handle = writing.network.get_submodule(part).register_forward_hook(lambda *said: heard.append(said))
    writing.read(torch.tensor([8, 9]))
    handle.remove()
    writing.read(torch.tensor([8, 9]))
    assert len(heard) == 1


@torch.inference_mode()
def test_who_listens_to_all_parts_hears_of_a_step():
    writing, heard = Writing("translating"), []
    handle = nn.modules.module.register_module_forward_hook(lambda part, *said: heard.append(type(part).__name__))
    writing.read(torch.tensor([8, 9]))
    handle.remove()
    assert {"CompiledEmbedding", "CompiledStack", "QuickLanguageModel"} <= set(heard)


@pytest.mark.parametrize("part", ["embedding", "decoder", "head"])
@torch.inference_mode()
def test_parts_that_were_replaced_are_replaced(part):
    found, expected = (Writing("learned") for _ in range(2))
    other = prepare(single("learned", seed=1))
    for writing in (found, expected):
        writing.network.register_module(part, other.get_submodule(part))
    tokens = torch.tensor([8, 9])
    assert torch.equal(found.read(tokens).logits, expected.read(tokens, call=expected.part_by_part).logits)


@torch.inference_mode()
def test_a_table_that_was_replaced_is_replaced():
    found, plain = Writing("rotary"), single("rotary")
    new = torch.randn_like(plain.embedding.tokens.weight)
    before = found.read(torch.tensor([8, 9])).logits
    found.network.load_state_dict({"embedding.tokens.weight": new}, strict=False, assign=True)
    found.cache = found.network.new_cache()
    found.read(FIRST, BEGUN)
    now = found.read(torch.tensor([8, 9])).logits
    assert not torch.equal(now, before)
    other = Writing("rotary")
    other.network.load_state_dict({"embedding.tokens.weight": new}, strict=False, assign=True)
    other.cache = other.network.new_cache()
    other.read(FIRST, BEGUN, call=other.part_by_part)
    assert torch.equal(now, other.read(torch.tensor([8, 9]), call=other.part_by_part).logits)


def test_a_network_of_another_kind_stays_what_it_is():
    class Mine(DecoderOnly):
        pass

    plain = single("learned")
    plain.__class__ = Mine
    assert type(prepare(plain)) is Mine


@torch.inference_mode()
def test_what_is_wrong_is_said_as_before():
    writing = Writing("translating")
    with pytest.raises(ValueError, match="the cache holds 2 rows, but the batch has 3"):
        writing.read(torch.tensor([8, 9, 1]), Rows.of([1, 1, 1]))
    with pytest.raises(ValueError, match="each row needs at least one token"):
        writing.read(torch.tensor([8, 9]), Rows((0, 2), (0, 0), torch.device("cpu")))
    writing = Writing("learned")
    learnt = writing.network.embedding.position.length
    while max(writing.cache.lengths) < learnt:
        writing.read(torch.tensor([8, 9]))
    with pytest.raises(ValueError, match=f"longer than the {learnt} positions that this network has learnt"):
        writing.read(torch.tensor([8, 9]))


@torch.inference_mode()
def test_without_its_head_it_gives_vectors_alone():
    writing, other = Writing("rotary"), Writing("rotary")
    bare = writing.network.headless()
    found = writing.read(torch.tensor([8, 9]), call=bare)
    assert found.logits is None
    assert torch.equal(found.hidden, other.read(torch.tensor([8, 9])).hidden)


@torch.inference_mode()
def test_tokens_of_other_numbers_and_strides():
    found, other = Writing("learned"), Writing("learned")
    expected = other.read(torch.tensor([8, 9])).logits
    assert torch.equal(found.read(torch.tensor([[8, 1], [9, 1]])[:, 0]).logits, expected)
    assert torch.equal(Writing("learned").read(torch.tensor([8, 9], dtype=torch.int32)).logits, expected)
