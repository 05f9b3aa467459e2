"""Presets: each builds on the meta device and has the parameter count of its paper or checkpoint."""

import json
import subprocess
import sys

import pytest
from unit.families.common import FAMILIES
from unit.families.published import PUBLISHED

from regard.families.registry import preset, presets
from regard.transformer.summary import count_parameters

# From papers, in millions: table 3 of Vaswani et al., table 2.1 of Brown et al.
ROUGHLY = {
    "transformer-base": 65,
    "transformer-big": 213,
    "gpt3-125m": 125,
    "gpt3-350m": 356,
    "gpt3-760m": 760,
    "gpt3-1.3b": 1_300,
    "gpt3-2.7b": 2_700,
    "gpt3-6.7b": 6_700,
    "gpt3-13b": 13_000,
    "gpt3-175b": 175_000,
}
OF_FAMILIES = {name: family for family in FAMILIES.values() for name in family.presets}


# In a subprocess without runtime type checking: hundreds of blocks are built quickly there.
SCRIPT = """
import json
from regard.families.registry import preset, presets
from regard.transformer.network import build_on_meta
counts = {}
for name in presets():
    parameters = list(build_on_meta(preset(name)).parameters())
    assert all(value.is_meta for value in parameters), name
    counts[name] = sum(value.numel() for value in parameters if value.requires_grad)
print(json.dumps(counts))
"""


def test_presets_take_no_memory_and_have_the_published_number_of_parameters():
    run = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=60)
    counts = json.loads(run.stdout)
    assert {name: counts[name] for name in PUBLISHED} == PUBLISHED
    for name in counts.keys() & ROUGHLY.keys():
        assert counts[name] == pytest.approx(ROUGHLY[name] * 10**6, rel=0.04)


def test_parameters_are_counted_without_memory():
    assert count_parameters(preset("bert-base")) == PUBLISHED["bert-base"]


@pytest.mark.parametrize("name", OF_FAMILIES)
def test_a_preset_is_written_as_its_own_family(name):
    design = preset(name)
    values = OF_FAMILIES[name].write_config(design)
    assert values["architectures"] == OF_FAMILIES[name].presets[name]["architectures"]
    assert OF_FAMILIES[name].read_config(values)[0] == design


def test_names_of_presets_are_all_different():
    assert len(set(presets())) == len(presets())


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown preset 'bert-bas' \(did you mean 'bert-base'\?\); available: .*gpt2"
    ):
        preset("bert-bas")
