"""Loading takes the memory of the weights, once."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from unit.checkpoint.folders import write_config

from regard.families.registry import FAMILIES
from regard.families.weight_map import places
from regard.transformer.network import empty

SIZES = dict(vocab_size=30000, hidden_size=768, num_hidden_layers=4, num_attention_heads=12, intermediate_size=3072)

# Without pytest, and without the checks of types: as it runs for everybody else.
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
load(tiny)                                        # what torch itself loads at the first call is not counted
before, start = memory("VmRSS"), time.process_time()
Path("/proc/self/clear_refs").write_text("5")     # the kernel forgets the peak so far
network = load(big).network
seconds, opened = time.process_time() - start, memory("VmHWM") - before
total = sum(value.double().sum().item() for value in network.parameters())   # every page is read
network(torch.zeros(1, 4, dtype=torch.long))
print(json.dumps(dict(opened=opened, used=memory("VmHWM") - before, seconds=seconds, total=total)))
"""


def write(folder, **sizes):
    """Weights without a network: quickly made, and as large as those of a real one."""
    family = FAMILIES["bert"]
    design, architecture = family.read(sizes, "BertForTokenClassification")
    entries = (*family.weights(design), *family.architectures[architecture].weights)
    shapes = {name: value.shape for name, value in empty(design).named_parameters()}
    tensors = {place.theirs: torch.rand(shapes[place.ours[0]]) for place in places(entries, "bert.", list(shapes))}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    write_config(folder, {"model_type": "bert", "architectures": [architecture], **sizes})
    return sum(tensor.nbytes for tensor in tensors.values()) / 2**20


def measured(folder, precision):
    """What opening and using a large folder takes, in a process of its own; and the size of its weights in MB."""
    size = write(folder / "big", **SIZES)
    write(folder / "tiny", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    assert 180 < size < 220
    run = [sys.executable, "-c", SCRIPT, str(folder / "big"), str(folder / "tiny"), precision]
    return size, json.loads(subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_loading_takes_the_memory_of_the_weights_once(tmp_path):
    size, found = measured(tmp_path, "plain")
    assert found["opened"] < 1.2 * size + 20
    assert found["used"] < 1.2 * size + 40
    assert found["seconds"] < 2
    assert found["total"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked to take it back")
@pytest.mark.parametrize(("precision", "share"), [("fp32", 1.0), ("int8", 0.25)])
def test_preparing_takes_their_memory_once_too(tmp_path, precision, share):
    """What was mapped from the file leaves memory once it has its new layout: but for the two parts that are being laid
    out, of 20 MB each, it is there once. The table of tokens is not read."""
    size, found = measured(tmp_path, precision)
    matrices = size - SIZES["vocab_size"] * SIZES["hidden_size"] * 4 / 2**20
    assert found["opened"] < share * matrices + 75
