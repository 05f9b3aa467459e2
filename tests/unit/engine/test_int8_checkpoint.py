"""A folder in bytes is opened as it is, and computes what it would if it had been made numbers first."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.generation.networks import KINDS, design, translates
from unit.native.no_native import without_compiled_parts
from unit.transformer.small_networks import made

from regard.checkpoint.load import load
from regard.checkpoint.quantized_tensor import SCALE
from regard.checkpoint.save import save
from regard.engine import Precision, linear_int8, prepare
from regard.engine.compiler import matrices
from regard.engine.modules_torch import RoundedTokens
from regard.families.registry import FAMILIES
from regard.generation import Given, Settings, generate
from regard.native.library import available

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines
WAYS = [
    pytest.param("compiled", marks=pytest.mark.skipif(not available(), reason="no compiled parts here")),
    "ByInstruction",
    pytest.param("BySixteenBits", marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")),
]
LAYOUTS = {
    "gpt2": dict(n_embd=8, n_layer=1, n_head=2, n_positions=16),
    "t5": dict(d_model=8, d_kv=4, num_layers=1, num_heads=2, d_ff=9),
    "bart": dict(
        d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=9, decoder_ffn_dim=7,
    ),
}  # fmt: skip
HEADS = {"gpt2": "GPT2LMHeadModel", "t5": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration"}


def multiply(way, monkeypatch):
    """Multiply bytes in this way."""
    if way != "compiled":
        without_compiled_parts(monkeypatch)
        monkeypatch.setattr(linear_int8, "int8", getattr(linear_int8, way))


def both(folder, precision=Precision.INT8):
    """Opened as it is, and made numbers first."""
    as_it_is, _ = load(folder, dtype=torch.float32, in_bytes=matrices)
    return prepare(as_it_is, precision), prepare(load(folder)[0], precision)


def written(network, translating):
    """A few tokens and their scores."""
    given = Given([3, 4], [5, 6, 7] if translating else None)
    found = next(generate(network, [given], Settings(end=[2], limit=5))).hypotheses[0]
    return found.tokens, found.token_scores


def same(networks, translating):
    """Both write the same. The scores may differ in the last bit, where a head has a scale of its own."""
    (tokens, scores), (others, close) = (written(network, translating) for network in networks)
    assert tokens == others
    assert scores == pytest.approx(close, rel=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_it_would_as_numbers(kind, way, tmp_path, monkeypatch):
    multiply(way, monkeypatch)
    plain = made(design(kind), 0).float()
    save(plain, tmp_path, in_bytes=matrices(plain))
    same(both(tmp_path), translates(kind))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", LAYOUTS)
def test_whatever_the_layout_of_the_file(family, way, tmp_path, monkeypatch):
    """Matrices that stand transposed, side by side, or under several names; a head with a scale of its own."""
    multiply(way, monkeypatch)
    plain = made(FAMILIES[family].read(LAYOUTS[family] | {"vocab_size": 40}, HEADS[family])[0], 0).float()
    assert save(plain, tmp_path, in_bytes=matrices(plain)) == family
    same(both(tmp_path), family != "gpt2")


def test_in_float32_too(tmp_path):
    plain = made(design("translating"), 0).float()
    save(plain, tmp_path, in_bytes=matrices(plain))
    same(both(tmp_path, Precision.FP32), True)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_stay_bytes(kind, tmp_path):
    plain = made(design(kind), 0).float()
    save(plain, tmp_path, in_bytes=matrices(plain))
    found, _ = load(tmp_path, in_bytes=matrices)
    in_bytes = {name for name, value in found.named_parameters() if value.dtype == torch.int8}
    assert in_bytes == matrices(plain) & {name for name, _ in plain.named_parameters()}
    assert all(value.dtype == torch.float32 for value in load(tmp_path)[0].parameters())


def test_a_table_is_looked_up_in_levels(tmp_path):
    """The same numbers, to the last bit, as the table itself has."""
    plain = made(design("translating"), 0).float()
    save(plain, tmp_path, in_bytes=matrices(plain))
    one, other = both(tmp_path)
    tokens = torch.tensor([3, 0, 3, 7])
    assert isinstance(one.target.tokens, RoundedTokens)
    assert torch.equal(one.target.tokens(tokens), other.target.tokens(tokens))


def test_scales_of_another_kind_are_made_numbers(tmp_path):
    """A file may have a scale for each input, or one for all."""
    plain = made(design("learned"), 0).float()
    save(plain, tmp_path, in_bytes=matrices(plain))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "up.weight" in name and name.endswith(SCALE))
    inputs = tensors[name.removesuffix(SCALE)].shape[1]
    save_file(tensors | {name: torch.linspace(0.1, 0.2, inputs)[None]}, file)
    assert load(tmp_path, in_bytes=matrices)[0].get_parameter(name.removesuffix(SCALE)).dtype == torch.float32
    same(both(tmp_path), False)


# Without pytest, and without the checks of types: as it runs for everybody else.
SCRIPT = """
import json, sys
from pathlib import Path
import regard, regard.model

def memory(kind):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024

regard.load(sys.argv[2], precision="int8")        # what torch itself loads at the first call is not counted
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")     # the kernel forgets the peak so far
kept = regard.load(sys.argv[1], precision="int8")
print(json.dumps(memory("VmHWM") - before))
"""


def test_opening_takes_the_memory_of_bytes(tmp_path):
    """The pages of the file, the packed copy and one matrix in work: less than the numbers alone."""
    config = dict(n_embd=512, n_layer=4, n_head=8, n_positions=16, vocab_size=30000)
    for name, sizes in (("big", config), ("tiny", config | dict(n_embd=8, n_layer=1, n_head=2, vocab_size=9))):
        plain = made(FAMILIES["gpt2"].read(sizes, "GPT2LMHeadModel")[0], 0).float()
        save(plain, tmp_path / name, in_bytes=matrices(plain))
    numbers = sum(value.nbytes for value in made(FAMILIES["gpt2"].read(config)[0], 0).float().parameters()) / 2**20
    run = [sys.executable, "-c", SCRIPT, str(tmp_path / "big"), str(tmp_path / "tiny")]
    peak = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert peak < 0.95 * numbers, (peak, numbers)
