"""A decode step in one native call, against the same network called module by module."""

import pytest
import torch
from torch import nn
from unit.engine.test_compiler import single
from unit.generation.networks import VOCABULARY, translates

from regard.engine import Precision, compile
from regard.engine.decode_step import NativeDecoderOnly, NativeEncoderDecoder
from regard.native.library import available
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import DecoderOnly, EncoderDecoder

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not available")
KINDS = ["learned", "rotary", "buckets", "translating", "translating by waves"]
FIRST, BEGUN = torch.tensor([3, 4, 5, 6, 7]), BatchLayout.of([3, 2])
ONE_EACH = BatchLayout.of([1, 1])


class Decoding:
    """A network with a cache of two sequences, which it continues."""

    def __init__(self, kind, precision=Precision.FLOAT32):
        self.network, self.translates = compile(single(kind), precision), translates(kind)
        self.base = EncoderDecoder if self.translates else DecoderOnly
        self.cache = self.network.new_cache()
        self.source = (
            self.network.encode(torch.tensor([5, 6, 7]), layout=BatchLayout.of([2, 1])) if self.translates else None
        )
        self.step(FIRST, BEGUN)

    def step(self, tokens, rows=ONE_EACH, call=None):
        """Return the output for new tokens, of the network or of `call`."""
        call = call or self.network
        if self.translates:
            return call(self.source, tokens, target_layout=rows, cache=self.cache)
        return call(tokens, layout=rows, cache=self.cache)

    def module_by_module(self, *args, **kwargs):
        return self.base.forward(self.network, *args, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", list(Precision))
@torch.inference_mode()
def test_one_call_computes_what_its_modules_compute(kind, precision, monkeypatch):
    compiled, parts = Decoding(kind, precision), Decoding(kind, precision)
    assert isinstance(compiled.network, NativeDecoderOnly | NativeEncoderDecoder)
    steps = [[8, 9], [1, 2], [5, 5]]
    expected = [parts.step(torch.tensor(tokens), call=parts.module_by_module) for tokens in steps]
    monkeypatch.setattr(compiled.base, "forward", lambda *args, **kwargs: pytest.fail("the modules were called"))
    for tokens, other in zip(steps, expected, strict=True):
        found = compiled.step(torch.tensor(tokens))
        assert torch.equal(found.logits, other.logits)
        assert torch.equal(found.hidden, other.hidden)
        assert found.cache is compiled.cache
        assert found.source is compiled.source
    assert compiled.cache.lengths == (6, 5)


@pytest.mark.parametrize("kind", ["learned", "translating by waves"])
@pytest.mark.parametrize("token", [-1, VOCABULARY])
@torch.inference_mode()
def test_after_an_invalid_token_the_cache_is_unchanged(kind, token):
    found, other = Decoding(kind), Decoding(kind)
    with pytest.raises(IndexError, match=f"token id {token} is out of range for a vocabulary of {VOCABULARY}"):
        found.step(torch.tensor([8, token]))
    assert found.cache.lengths == (3, 2)
    for tokens in [8, 9], [1, 2]:
        assert torch.equal(found.step(torch.tensor(tokens)).logits, other.step(torch.tensor(tokens)).logits)


@pytest.mark.parametrize("part", ["head", "head.linear", "decoder", "decoder.blocks.0.feedforward"])
@torch.inference_mode()
def test_a_hook_on_a_module_is_called(part):
    decoding, calls = Decoding("translating"), []
    handle = decoding.network.get_submodule(part).register_forward_hook(lambda *args: calls.append(args))
    decoding.step(torch.tensor([8, 9]))
    handle.remove()
    decoding.step(torch.tensor([8, 9]))
    assert len(calls) == 1


@torch.inference_mode()
def test_a_global_hook_is_called():
    decoding, calls = Decoding("translating"), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *args: calls.append(type(module).__name__))
    decoding.step(torch.tensor([8, 9]))
    handle.remove()
    assert {"NativeEmbedding", "NativeStack", "InferenceLanguageModel"} <= set(calls)


@pytest.mark.parametrize("part", ["embedding", "decoder", "head"])
@torch.inference_mode()
def test_replaced_modules_are_used(part):
    found, expected = (Decoding("learned") for _ in range(2))
    other = compile(single("learned", seed=1))
    for decoding in (found, expected):
        decoding.network.register_module(part, other.get_submodule(part))
    tokens = torch.tensor([8, 9])
    assert torch.equal(found.step(tokens).logits, expected.step(tokens, call=expected.module_by_module).logits)


@torch.inference_mode()
def test_a_replaced_table_is_used():
    found, original = Decoding("rotary"), single("rotary")
    new = torch.randn_like(original.embedding.tokens.weight)
    before = found.step(torch.tensor([8, 9])).logits
    found.network.load_state_dict({"embedding.tokens.weight": new}, strict=False, assign=True)
    found.cache = found.network.new_cache()
    found.step(FIRST, BEGUN)
    now = found.step(torch.tensor([8, 9])).logits
    assert not torch.equal(now, before)
    other = Decoding("rotary")
    other.network.load_state_dict({"embedding.tokens.weight": new}, strict=False, assign=True)
    other.cache = other.network.new_cache()
    other.step(FIRST, BEGUN, call=other.module_by_module)
    assert torch.equal(now, other.step(torch.tensor([8, 9]), call=other.module_by_module).logits)


def test_a_network_of_another_kind_stays_what_it_is():
    class Mine(DecoderOnly):
        pass

    original = single("learned")
    original.__class__ = Mine
    assert type(compile(original)) is Mine


@torch.inference_mode()
def test_errors_are_those_of_the_original_network():
    decoding = Decoding("translating")
    with pytest.raises(ValueError, match="the KV cache holds 2 sequences, but the batch has 3"):
        decoding.step(torch.tensor([8, 9, 1]), BatchLayout.of([1, 1, 1]))
    with pytest.raises(ValueError, match="every sequence needs at least one token"):
        decoding.step(torch.tensor([8, 9]), BatchLayout((0, 2), (0, 0), torch.device("cpu")))
    decoding = Decoding("learned")
    learnt = decoding.network.embedding.position.length
    while max(decoding.cache.lengths) < learnt:
        decoding.step(torch.tensor([8, 9]))
    with pytest.raises(ValueError, match=f"exceeds the {learnt} learned positions of this network"):
        decoding.step(torch.tensor([8, 9]))


@torch.inference_mode()
def test_without_its_head_it_gives_vectors_alone():
    decoding, other = Decoding("rotary"), Decoding("rotary")
    bare = decoding.network.without_head()
    found = decoding.step(torch.tensor([8, 9]), call=bare)
    assert found.logits is None
    assert torch.equal(found.hidden, other.step(torch.tensor([8, 9])).hidden)


@torch.inference_mode()
def test_tokens_of_other_numbers_and_strides():
    found, other = Decoding("learned"), Decoding("learned")
    expected = other.step(torch.tensor([8, 9])).logits
    assert torch.equal(found.step(torch.tensor([[8, 1], [9, 1]])[:, 0]).logits, expected)
    assert torch.equal(Decoding("learned").step(torch.tensor([8, 9], dtype=torch.int32)).logits, expected)
