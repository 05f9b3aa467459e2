"""Inputs and surroundings of the native kernels: other dtypes, other defaults, other threads, other batches."""

import copy
import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import torch
from unit.generation.networks import design
from unit.transformer.small_networks import made

from regard.engine import Precision, compile
from regard.families.registry import FAMILIES
from regard.generation.topk import logsumexp, topk
from regard.native.library import available
from regard.transformer.attention import EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import build

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not available")
BERT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)


def bert():
    return build(FAMILIES["bert"].read_config(BERT, "BertForMaskedLM")[0], seed=1).eval()


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.inference_mode()
def test_torch_s_default_dtype_has_no_effect(dtype):
    compiled, tokens = compile(bert()), torch.arange(12).view(2, 6)
    scores = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    expected = compiled(tokens).logits, logsumexp(scores), topk(scores, 4)[0]
    with default_dtype(dtype):
        found = compiled(tokens).logits, logsumexp(scores), topk(scores, 4)[0]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32
        assert torch.equal(one, other)


@torch.inference_mode()
def test_autocast_around_a_compiled_network():
    """Layers that torch computes then return bfloat16, which the native norm after them converts to float32."""
    compiled, tokens = compile(bert()), torch.arange(12).view(2, 6)
    expected = compiled(tokens).logits
    with torch.autocast("cpu", torch.bfloat16):
        found = compiled(tokens).logits
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("change", ["double", "half", "bfloat16", "share_memory"])
def test_a_compiled_network_is_not_changed(change):
    with pytest.raises(TypeError, match="is now invalid: a compiled network cannot be moved, cast, copied or pickled"):
        getattr(compile(bert()), change)()


def test_what_changes_nothing_is_allowed():
    compiled, tokens = compile(bert()), torch.arange(6)[None]
    before = compiled(tokens).logits
    assert torch.equal(compiled.float().cpu().eval()(tokens).logits, before)


@pytest.mark.parametrize("way", [copy.deepcopy, pickle.dumps, compile])
@pytest.mark.parametrize("kind", ["bert", "rotary", "translating"])
def test_a_compiled_network_is_not_copied(way, kind):
    original = bert() if kind == "bert" else made(design(kind), 0).float()
    with pytest.raises(TypeError, match="cannot be moved, cast, copied or pickled: do that to the original network"):
        way(compile(original))


@pytest.mark.parametrize("compiled", [False, True])
@torch.inference_mode()
def test_a_source_of_other_rows_is_refused(compiled):
    """Also by a decoder-only network with cross-attention: the native block would read out of bounds."""
    sizes = dict(vocab_size=30, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16)
    network = build(FAMILIES["marian"].read_config(sizes | {"pad_token_id": 0}, "MarianForCausalLM")[0], seed=1).eval()
    network = compile(network) if compiled else network
    source = EncoderOutput(torch.randn(5, 16), BatchLayout.of([3, 2]))
    assert network(torch.ones(2, 4, dtype=torch.long), source=source, cache=network.new_cache()).logits.isfinite().all()
    with pytest.raises(ValueError, match="2 source sequences but 3 target sequences"):
        network(torch.ones(3, 4, dtype=torch.long), source=source, cache=network.new_cache())


def test_threads_that_share_a_network():
    original = made(design("translating by waves"), 0).float().eval()
    network = compile(original, Precision.INT8)
    texts = [torch.tensor([[token, token, 2]]) for token in (5, 9)]
    target = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        expected = [network(text, target).logits for text in texts]
    assert not torch.equal(*expected)
    wrong = []

    def work(number):
        with torch.inference_mode():
            for _ in range(150):
                if not torch.equal(network(texts[number], target).logits, expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


THREADS = """
import resource, threading
import torch
from regard.engine.modules_native import PackedLinear
from regard.engine.linear import LinearWeights, Precision

linear, x = PackedLinear(LinearWeights(torch.randn(64, 1024), None), Precision.INT8), torch.randn(2000, 1024)
torch.set_num_threads(1)

def threads(count):
    for _ in range(count):
        thread = threading.Thread(target=lambda: linear(x))
        thread.start()
        thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

first = threads(5)
print(threads(60) - first)
"""


def test_threads_release_their_scratch_memory():
    run = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 40_000  # kilobytes; each thread uses 4,000
