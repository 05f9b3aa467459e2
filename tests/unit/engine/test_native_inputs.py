"""What comes to the compiled parts from outside: other types, other defaults, other threads, other batches."""

import copy
import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import torch
from unit.engine.test_shortlist import table
from unit.generation.networks import VOCABULARY, design
from unit.transformer.small_networks import made

from regard.engine import Precision, prepare
from regard.engine.shortlist_head import Listed
from regard.families.registry import FAMILIES
from regard.generation.topk import best, whole
from regard.native.library import available
from regard.transformer.attention import Source
from regard.transformer.batch_layout import Rows
from regard.transformer.network import build

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no compiled parts")
BERT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)


def bert():
    return build(FAMILIES["bert"].read(BERT, "BertForMaskedLM")[0], seed=1).eval()


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
def test_torch_s_default_type_is_nothing_to_them(dtype):
    quick, tokens = prepare(bert()), torch.arange(12).view(2, 6)
    scores = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    wanted = quick(tokens).logits, whole(scores), best(scores, 4)[0]
    with default_dtype(dtype):
        found = quick(tokens).logits, whole(scores), best(scores, 4)[0]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype is torch.float32
        assert torch.equal(one, other)


@torch.inference_mode()
def test_autocast_around_a_prepared_network():
    """Layers that torch computes then answer in bfloat16, which the compiled norm after them widens."""
    quick, tokens = prepare(bert()), torch.arange(12).view(2, 6)
    wanted = quick(tokens).logits
    with torch.autocast("cpu", torch.bfloat16):
        found = quick(tokens).logits
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("change", ["double", "half", "bfloat16", "share_memory"])
def test_a_prepared_network_is_not_changed(change):
    with pytest.raises(TypeError, match="of no more use: a prepared network stays float32 on the CPU"):
        getattr(prepare(bert()), change)()


def test_what_changes_nothing_is_allowed():
    quick, tokens = prepare(bert()), torch.arange(6)[None]
    before = quick(tokens).logits
    assert torch.equal(quick.float().cpu().eval()(tokens).logits, before)


@pytest.mark.parametrize("way", [copy.deepcopy, pickle.dumps, prepare])
@pytest.mark.parametrize("kind", ["bert", "rotary", "translating"])
def test_a_prepared_network_is_not_copied(way, kind):
    plain = bert() if kind == "bert" else made(design(kind), 0).float()
    with pytest.raises(TypeError, match="neither copied nor pickled: move, change, copy or save the network"):
        way(prepare(plain))


@pytest.mark.parametrize("prepared", [False, True])
@torch.inference_mode()
def test_a_source_of_other_rows_is_refused(prepared):
    """By a decoder with a source of its own too: the compiled block would read beside it."""
    sizes = dict(vocab_size=30, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16)
    network = build(FAMILIES["marian"].read(sizes | {"pad_token_id": 0}, "MarianForCausalLM")[0], seed=1).eval()
    network = prepare(network) if prepared else network
    source = Source(torch.randn(5, 16), Rows.of([3, 2]))
    assert network(torch.ones(2, 4, dtype=torch.long), source=source, cache=network.new_cache()).logits.isfinite().all()
    with pytest.raises(ValueError, match="2 source rows but 3 target rows"):
        network(torch.ones(3, 4, dtype=torch.long), source=source, cache=network.new_cache())


def test_threads_that_share_a_network_with_shortlists():
    plain = made(design("translating by waves"), 0).float().eval()
    lists = [[token % 7 + 3, token % 5 + 11] for token in range(VOCABULARY)]
    network = Listed(prepare(plain, Precision.INT8), table(lists, vocabulary=VOCABULARY), always=[2])
    texts = [torch.tensor([[token, token, 2]]) for token in (5, 9)]
    target = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        wanted = [network(text, target).logits for text in texts]
    assert not torch.equal(*wanted)
    wrong = []

    def work(number):
        with torch.inference_mode():
            for _ in range(150):
                if not torch.equal(network(texts[number], target).logits, wanted[number]):
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
from regard.engine.compiled import InPanels
from regard.engine.matrix import Affine, Precision

matrix, x = InPanels(Affine(torch.randn(64, 1024), None), Precision.INT8), torch.randn(2000, 1024)
torch.set_num_threads(1)

def threads(count):
    for _ in range(count):
        one = threading.Thread(target=lambda: matrix(x))
        one.start()
        one.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

first = threads(5)
print(threads(60) - first)
"""


def test_threads_give_back_what_they_worked_with():
    run = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 40_000  # kilobytes; each thread works with 4,000
