"""An int8 checkpoint is loaded without dequantizing it, with the results of the dequantized weights."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.generation.networks import KINDS, design, translates
from unit.native.no_native import without_native_library
from unit.transformer.small_networks import made

from regard.checkpoint.load import load
from regard.checkpoint.quantized_tensor import SCALE_SUFFIX
from regard.checkpoint.save import save
from regard.engine import Precision, compile, linear_int8
from regard.engine.compiler import quantizable_weights
from regard.engine.modules_torch import QuantizedTokens
from regard.families.registry import FAMILIES
from regard.generation import DecodingOptions, Inputs, generate
from regard.native.library import available

HAS_FBGEMM = "fbgemm" in torch.backends.quantized.supported_engines
WAYS = [
    pytest.param("native", marks=pytest.mark.skipif(not available(), reason="the native library is not available")),
    "VnniLinear",
    pytest.param("FbgemmLinear", marks=pytest.mark.skipif(not HAS_FBGEMM, reason="torch has no FBGEMM here")),
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


def use_implementation(way, monkeypatch):
    """Use this implementation of int8 linear layers."""
    if way != "native":
        without_native_library(monkeypatch)
        monkeypatch.setattr(linear_int8, "make_int8_linear", getattr(linear_int8, way))


def both(folder, precision=Precision.INT8):
    """Return the compiled network, loaded as int8, and loaded as float32."""
    as_it_is, _ = load(folder, dtype=torch.float32, keep_int8=quantizable_weights)
    return compile(as_it_is, precision), compile(load(folder)[0], precision)


def generated(network, translating):
    """Return a few generated tokens and their scores."""
    inputs = Inputs([3, 4], [5, 6, 7] if translating else None)
    found = next(generate(network, [inputs], DecodingOptions(eos_token_ids=[2], max_new_tokens=5))).hypotheses[0]
    return found.tokens, found.token_scores


def same(networks, translating):
    """Check that both generate the same. Scores may differ in the last bit if the head has a scale."""
    (tokens, scores), (others, close) = (generated(network, translating) for network in networks)
    assert tokens == others
    assert scores == pytest.approx(close, rel=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_it_would_in_float32(kind, way, tmp_path, monkeypatch):
    use_implementation(way, monkeypatch)
    original = made(design(kind), 0).float()
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    same(both(tmp_path), translates(kind))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", LAYOUTS)
def test_whatever_the_layout_of_the_file(family, way, tmp_path, monkeypatch):
    """Weights that are transposed, concatenated, or stored under several names; a head with a scale."""
    use_implementation(way, monkeypatch)
    original = made(FAMILIES[family].read_config(LAYOUTS[family] | {"vocab_size": 40}, HEADS[family])[0], 0).float()
    assert save(original, tmp_path, int8_weights=quantizable_weights(original)) == family
    same(both(tmp_path), family != "gpt2")


def test_in_float32_too(tmp_path):
    original = made(design("translating"), 0).float()
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    same(both(tmp_path, Precision.FLOAT32), True)


@pytest.mark.parametrize("kind", KINDS)
def test_int8_weights_stay_int8(kind, tmp_path):
    original = made(design(kind), 0).float()
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    found, _ = load(tmp_path, keep_int8=quantizable_weights)
    int8_names = {name for name, value in found.named_parameters() if value.dtype == torch.int8}
    assert int8_names == quantizable_weights(original) & {name for name, _ in original.named_parameters()}
    assert all(value.dtype == torch.float32 for value in load(tmp_path)[0].parameters())


def test_an_int8_table_is_looked_up(tmp_path):
    """Exactly the values of the dequantized table."""
    original = made(design("translating"), 0).float()
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    one, other = both(tmp_path)
    tokens = torch.tensor([3, 0, 3, 7])
    assert isinstance(one.target.tokens, QuantizedTokens)
    assert torch.equal(one.target.tokens(tokens), other.target.tokens(tokens))


def test_weights_with_scales_of_another_shape_are_dequantized(tmp_path):
    """A file may have a scale for each input, or one for all: such weights are dequantized."""
    original = made(design("learned"), 0).float()
    save(original, tmp_path, int8_weights=quantizable_weights(original))
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "up.weight" in name and name.endswith(SCALE_SUFFIX))
    inputs = tensors[name.removesuffix(SCALE_SUFFIX)].shape[1]
    save_file(tensors | {name: torch.linspace(0.1, 0.2, inputs)[None]}, file)
    assert (
        load(tmp_path, keep_int8=quantizable_weights)[0].get_parameter(name.removesuffix(SCALE_SUFFIX)).dtype
        == torch.float32
    )
    same(both(tmp_path), False)


# In a subprocess, without pytest and without jaxtyping's checks.
SCRIPT = """
import json, sys
from pathlib import Path
import regard, regard.model

def memory(kind):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024

regard.load(sys.argv[2], precision="int8")        # memory that torch allocates at the first call is not counted
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")     # reset the peak
model = regard.load(sys.argv[1], precision="int8")
print(json.dumps(memory("VmHWM") - before))
"""


def test_loading_takes_the_memory_of_int8(tmp_path):
    """The pages of the file, the packed copy and one weight at a time: less than the weights in float32."""
    config = dict(n_embd=512, n_layer=4, n_head=8, n_positions=16, vocab_size=30000)
    for name, sizes in (("big", config), ("tiny", config | dict(n_embd=8, n_layer=1, n_head=2, vocab_size=9))):
        original = made(FAMILIES["gpt2"].read_config(sizes, "GPT2LMHeadModel")[0], 0).float()
        save(original, tmp_path / name, int8_weights=quantizable_weights(original))
    float32_size = (
        sum(value.nbytes for value in made(FAMILIES["gpt2"].read_config(config)[0], 0).float().parameters()) / 2**20
    )
    run = [sys.executable, "-c", SCRIPT, str(tmp_path / "big"), str(tmp_path / "tiny")]
    peak = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert peak < 0.95 * float32_size, (peak, float32_size)
