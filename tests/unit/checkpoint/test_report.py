"""Every tensor of a file has exactly one load status, and the report lists it."""

from collections import Counter

import pytest
import torch
from unit.checkpoint.folders import says, weights, write_folder, write_weights

from regard.checkpoint.load import load
from regard.checkpoint.report import LoadReport, LoadStatus


@pytest.mark.parametrize("architecture", ["BertForPreTraining", "GPT2DoubleHeadsModel", "LlamaForCausalLM"])
def test_every_tensor_of_the_file_is_reported_once(tmp_path, architecture):
    network, report = load(write_folder(tmp_path, architecture))
    counts = Counter(line.theirs for line in report.lines)
    assert all(counts[name] == 1 for name in weights(tmp_path))
    assert set(counts) <= set(weights(tmp_path))
    filled = Counter(name for line in report.with_status(LoadStatus.LOADED) for name in line.ours)
    assert filled == Counter(name for name, _ in network.named_parameters())


@pytest.fixture
def mixed_report(tmp_path):
    """The report of a file with tensors of every status that is not an error."""
    folder = write_folder(tmp_path, "GPT2ForSequenceClassification")
    tensors = weights(folder)
    wte = tensors["transformer.wte.weight"]
    mask = torch.ones(1, 1, 19, 19).tril()
    write_weights(folder, {**tensors, "lm_head.weight": wte, "transformer.h.0.attn.bias": mask})
    return load(folder, architecture="GPT2DoubleHeadsModel")[1], weights(folder)


def test_every_status_is_reported(mixed_report):
    report, tensors = mixed_report
    counts = Counter(line.theirs for line in report.lines)
    assert {name: counts[name] for name in tensors} == dict.fromkeys(tensors, 1)
    assert [line.theirs for line in report.with_status(LoadStatus.TIED)] == ["lm_head.weight"]
    assert {line.theirs for line in report.with_status(LoadStatus.IGNORED)} == {
        "score.weight",
        "transformer.h.0.attn.bias",
    }
    assert report.newly_initialized == ["head.sentence.output.weight", "head.sentence.output.bias"]
    assert len(report.with_status(LoadStatus.LOADED, LoadStatus.TIED)) == len(report.with_status(LoadStatus.LOADED)) + 1
    assert all(line.reason for line in report.lines if line.status is not LoadStatus.LOADED)


def test_the_summary_counts_and_warns(mixed_report):
    report, _ = mixed_report
    first, *_, last = report.summary().splitlines()
    assert first == f"{report.folder}: 28 loaded, 1 tied, 2 ignored, 2 missing"
    assert last.startswith("WARNING: 2 parameters are not in the checkpoint and are newly initialized: ")
    assert says(last, "head.sentence.output.weight, head.sentence.output.bias", "Train the model")


def test_other_statuses_are_rendered_with_their_reason(mixed_report):
    report, _ = mixed_report
    text = report.render()
    assert text.startswith(report.summary())
    lines = text.removeprefix(report.summary()).strip("\n").splitlines()
    assert len(lines) == 5
    assert "  tied      lm_head.weight  (tied to transformer.wte.weight)" in lines
    assert "  ignored   transformer.h.0.attn.bias  (the causal mask, which is computed)" in lines
    assert any(says(line, "belongs to") for line in lines if "score.weight" in line)
    assert not any("ln_f" in line for line in lines)


def test_without_problems_there_is_no_warning(tmp_path):
    _, report = load(write_folder(tmp_path))
    assert report.summary() == f"{tmp_path}: 42 loaded"
    assert report.render() == report.summary()


def test_the_origin_is_the_published_config(tmp_path):
    _, report = load(write_folder(tmp_path, architecture="BertForMaskedLM", layer_norm_eps=1e-7))
    assert (report.origin.family, report.origin.architecture) == ("bert", "BertForMaskedLM")
    assert report.origin.config["layer_norm_eps"] == 1e-7


def test_lines_are_found_by_status():
    report = LoadReport("somewhere")
    report.add("a", ("x",), LoadStatus.LOADED)
    report.add("b", ("y", "z"), LoadStatus.MISSING, "because")
    assert [line.theirs for line in report.with_status(LoadStatus.MISSING)] == ["b"]
    assert report.with_status() == []
    assert report.newly_initialized == ["y", "z"]
    assert says(report.summary(), "somewhere: 1 loaded, 1 missing", "WARNING", "y, z")
