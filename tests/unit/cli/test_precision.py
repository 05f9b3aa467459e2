"""`--precision`: what is loaded, rounded, kept and said."""

import json

import pytest
import torch
from unit.cli.runner import run
from unit.native.no_native import without_compiled_parts
from unit.tasks import models

import regard
from regard.engine.linear import Packed, Plain
from regard.engine.linear_int8 import ByInstruction, BySixteenBits
from regard.engine.modules_native import InPanels
from regard.native.library import available

MAKE = {"translate": models.translating, "generate": models.continuing}


@pytest.fixture(params=MAKE)
def command(request):
    return request.param


@pytest.fixture
def folder(command, tmp_path):
    return MAKE[command](tmp_path / "model")


def kinds(model):
    return {type(part) for part in model.network.modules()}


def test_a_model_is_loaded_with_a_precision(folder):
    plain, quick, small = (regard.load(folder, precision=name) for name in (None, "fp32", "int8"))
    assert not kinds(plain) & {InPanels, Packed, Plain, ByInstruction, BySixteenBits}
    assert kinds(quick) & ({InPanels} if available() else {Packed, Plain})
    assert kinds(small) & ({InPanels} if available() else {ByInstruction, BySixteenBits})


def test_without_compiled_parts_torch_does_the_work(folder, monkeypatch):
    without_compiled_parts(monkeypatch)
    quick, small = (regard.load(folder, precision=name) for name in ("fp32", "int8"))
    assert kinds(quick) & {Packed, Plain}
    assert kinds(small) & {ByInstruction, BySixteenBits}


def test_what_does_not_go_together_is_said(folder, tmp_path):
    with pytest.raises(ValueError, match="'int4': choose one of fp32, int8"):
        regard.load(folder, precision="int4")
    with pytest.raises(ValueError, match="computes in float32"):
        regard.load(folder, precision="int8", dtype=torch.float64)
    with pytest.raises(ValueError, match="no weights to save"):
        regard.load(folder, precision="int8").save(tmp_path / "again")


def test_fp32_writes_what_the_plain_network_writes(command, folder):
    plain = regard.load(folder)
    written = plain.translate("the dog") if command == "translate" else plain.generate("the dog", limit=8)
    limit = [] if command == "translate" else ["--limit", 8]
    assert run(command, folder, "the dog", "--precision", "fp32", *limit).out == written[0].text + "\n"


def test_a_folder_in_bytes_is_smaller_and_runs_in_bytes(command, folder, tmp_path, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog runs\nthe cat\n\na man sleeps\n")
    called = run("convert", folder, tmp_path / "small", "--precision", "int8", "--measure", texts)
    assert called.code == 0
    weights = "model.safetensors"
    assert (tmp_path / "small" / weights).stat().st_size < 0.6 * (folder / weights).stat().st_size
    kept = json.loads((tmp_path / "small" / "engine.json").read_text())
    assert kept["precision"] == "int8"
    assert kept["loss"]["on"] == "texts.txt"
    assert f"cosine of the vectors {kept['loss']['cosine']:.4f}" in called.err
    asked = []
    load = regard.model.load
    monkeypatch.setattr(regard.model, "load", lambda *given, **named: asked.append(named) or load(*given, **named))
    assert run(command, tmp_path / "small", "the dog", "--limit", 4).code == 0
    assert asked[0]["precision"].value == "int8"


def test_the_loss_that_is_printed_is_the_loss_measured(command, folder, tmp_path):
    """Measured once more, on the same texts, between the two folders."""
    from regard.engine.quantization_error import measure, read
    from regard.tasks.calibration import of_texts

    texts = tmp_path / "texts.txt"
    texts.write_text("the dog runs\nthe cat\na man sleeps\n")
    run("convert", folder, tmp_path / "small", "--precision", "int8", "--measure", texts)
    plain, small = regard.load(folder, dtype=torch.float32), regard.load(tmp_path / "small", precision="int8")
    probes = of_texts(plain.network, plain.tokenizer, plain.habits, texts.read_text().splitlines())
    again = measure(plain.network, small.network, probes, "texts.txt")
    assert read(tmp_path / "small")[1] == again
    assert again.cosine < 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--measure", "texts.txt"], "--measure is for --precision int8"),
        (["--precision", "int8", "--dtype", "float16"], "leave --dtype or --precision out"),
        (["--precision", "int8", "--measure", "nowhere.txt"], "'nowhere.txt' does not exist"),
    ],
)
def test_wrong_calls_write_nothing(folder, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the dog\n")
    called = run("convert", folder, tmp_path / "same", *words)
    assert called.code == 2
    assert said in " ".join(called.err.replace("│", " ").split())
    assert not (tmp_path / "same").exists()


def test_a_folder_without_texts_to_measure_is_in_bytes_all_the_same(folder, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    called = run("convert", folder, tmp_path / "small", "--precision", "int8", "--measure", tmp_path / "empty.txt")
    assert called.code == 0
    assert "was not measured" in called.err
    assert json.loads((tmp_path / "small" / "engine.json").read_text()) == {"precision": "int8", "loss": None}


def test_what_is_written_over_is_no_longer_in_bytes(folder, tmp_path):
    run("convert", folder, tmp_path / "again", "--precision", "int8")
    run("convert", folder, tmp_path / "again", "--force")
    assert not (tmp_path / "again" / "engine.json").exists()
