"""Every tensor of a file meets exactly one fate, and the report tells it in words."""

from collections import Counter

import pytest
import torch
from unit.checkpoint.folders import says, weights, write_folder, write_weights

from regard.checkpoint.load import load
from regard.checkpoint.report import Fate, Report


@pytest.mark.parametrize("architecture", ["BertForPreTraining", "GPT2DoubleHeadsModel", "LlamaForCausalLM"])
def test_every_tensor_of_the_file_is_told_once(tmp_path, architecture):
    network, report = load(write_folder(tmp_path, architecture))
    told = Counter(line.theirs for line in report.lines)
    assert all(told[name] == 1 for name in weights(tmp_path))
    assert set(told) <= set(weights(tmp_path))
    filled = Counter(name for line in report.having(Fate.USED) for name in line.ours)
    assert filled == Counter(name for name, _ in network.named_parameters())


@pytest.fixture
def motley(tmp_path):
    """The report of a file in which something of every harmless kind happens."""
    folder = write_folder(tmp_path, "GPT2ForSequenceClassification")
    tensors = weights(folder)
    wte = tensors["transformer.wte.weight"]
    mask = torch.ones(1, 1, 19, 19).tril()
    write_weights(folder, {**tensors, "lm_head.weight": wte, "transformer.h.0.attn.bias": mask})
    return load(folder, architecture="GPT2DoubleHeadsModel")[1], weights(folder)


def test_every_fate_is_told(motley):
    report, tensors = motley
    told = Counter(line.theirs for line in report.lines)
    assert {name: told[name] for name in tensors} == dict.fromkeys(tensors, 1)
    assert [line.theirs for line in report.having(Fate.TIED)] == ["lm_head.weight"]
    assert {line.theirs for line in report.having(Fate.IGNORED)} == {"score.weight", "transformer.h.0.attn.bias"}
    assert report.new == ["head.sentence.output.weight", "head.sentence.output.bias"]
    assert len(report.having(Fate.USED, Fate.TIED)) == len(report.having(Fate.USED)) + 1
    assert all(line.why for line in report.lines if line.fate is not Fate.USED)


def test_the_summary_counts_and_shouts(motley):
    report, _ = motley
    first, *_, last = report.summary().splitlines()
    assert first == f"{report.folder}: 28 used, 1 tied, 2 ignored, 2 missing"
    assert last.startswith("WARNING: 2 parameters are not in the checkpoint and start untrained: ")
    assert says(last, "head.sentence.output.weight, head.sentence.output.bias", "Train them")


def test_what_was_not_simply_used_is_rendered_with_its_reason(motley):
    report, _ = motley
    text = report.render()
    assert text.startswith(report.summary())
    lines = text.removeprefix(report.summary()).strip("\n").splitlines()
    assert len(lines) == 5
    assert "  tied      lm_head.weight  (the same as transformer.wte.weight)" in lines
    assert "  ignored   transformer.h.0.attn.bias  (the causal mask, which is computed)" in lines
    assert any(says(line, "part of") for line in lines if "score.weight" in line)
    assert not any("ln_f" in line for line in lines)


def test_where_all_is_well_there_is_no_warning(tmp_path):
    _, report = load(write_folder(tmp_path))
    assert report.summary() == f"{tmp_path}: 42 used"
    assert report.render() == report.summary()


def test_the_origin_is_the_config_as_it_stood(tmp_path):
    _, report = load(write_folder(tmp_path, architecture="BertForMaskedLM", layer_norm_eps=1e-7))
    assert (report.origin.family, report.origin.architecture) == ("bert", "BertForMaskedLM")
    assert report.origin.theirs["layer_norm_eps"] == 1e-7


def test_lines_are_found_by_fate():
    report = Report("somewhere")
    report.add("a", ("x",), Fate.USED)
    report.add("b", ("y", "z"), Fate.MISSING, "because")
    assert [line.theirs for line in report.having(Fate.MISSING)] == ["b"]
    assert report.having() == []
    assert report.new == ["y", "z"]
    assert says(report.summary(), "somewhere: 1 used, 1 missing", "WARNING", "y, z")
