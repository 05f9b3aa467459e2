"""Loading needs the memory of the weights once."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from unit.checkpoint.folders import write_config

from regard.families.registry import FAMILIES
from regard.families.weight_map import resolve_entries
from regard.transformer.network import build_on_meta

SIZES = dict(vocab_size=30000, hidden_size=768, num_hidden_layers=4, num_attention_heads=12, intermediate_size=3072)

# Without pytest and runtime type checking, as in normal use.
SCRIPT = """
import json, sys, time
from pathlib import Path
import torch
import regard

def memory(kind):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024

big, tiny, precision = sys.argv[1:]
load = lambda folder: regard.load(folder, precision=None if precision == "plain" else precision)
load(tiny)                                        # what torch loads at the first call is not counted
before, start = memory("VmRSS"), time.process_time()
Path("/proc/self/clear_refs").write_text("5")     # reset the peak
network = load(big).network
seconds, opened = time.process_time() - start, memory("VmHWM") - before
total = sum(value.double().sum().item() for value in network.parameters())   # every page is read
network(torch.zeros(1, 4, dtype=torch.long))
print(json.dumps(dict(opened=opened, used=memory("VmHWM") - before, seconds=seconds, total=total)))
"""


def write(folder, **sizes):
    """Write weights without building a network: fast, and as large as those of a real one. Return the size in MB."""
    family = FAMILIES["bert"]
    design, architecture = family.read_config(sizes, "BertForTokenClassification")
    entries = (*family.weights(design), *family.architectures[architecture].weights)
    shapes = {name: value.shape for name, value in build_on_meta(design).named_parameters()}
    tensors = {
        mapping.theirs: torch.rand(shapes[mapping.ours[0]])
        for mapping in resolve_entries(entries, "bert.", list(shapes))
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    write_config(folder, {"model_type": "bert", "architectures": [architecture], **sizes})
    return sum(tensor.nbytes for tensor in tensors.values()) / 2**20


def measured(folder, precision):
    """Return the size of the weights in MB, and the memory and time to load and use them in a subprocess."""
    size = write(folder / "big", **SIZES)
    write(folder / "tiny", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    assert 180 < size < 220
    command = [sys.executable, "-c", SCRIPT, str(folder / "big"), str(folder / "tiny"), precision]
    return size, json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_loading_takes_the_memory_of_the_weights_once(tmp_path):
    size, result = measured(tmp_path, "plain")
    assert result["opened"] < 1.2 * size + 20
    assert result["used"] < 1.2 * size + 40
    assert result["seconds"] < 2
    assert result["total"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="mapped pages are released on Linux only")
@pytest.mark.parametrize(("precision", "ratio"), [("float32", 1.0), ("int8", 0.25)])
def test_compiling_takes_their_memory_once_too(tmp_path, precision, ratio):
    """Mapped weights are released once they are packed: apart from the two layers being packed, of 20 MB each, memory
    holds one copy. The token embedding is not read."""
    size, result = measured(tmp_path, precision)
    matrices = size - SIZES["vocab_size"] * SIZES["hidden_size"] * 4 / 2**20
    assert result["opened"] < ratio * matrices + 75
