"""`--precision`: loading, quantization, the files in the folder, and messages."""

import json

import pytest
from unit.cli.runner import run
from unit.native.no_native import without_native_library
from unit.tasks import models

import regard
from regard.checkpoint.model_folder import ModelFolder
from regard.engine.linear import OneDnnLinear, TorchLinear
from regard.engine.linear_int8 import FbgemmLinear, VnniLinear
from regard.engine.modules_native import PackedLinear
from regard.engine.quantization_error import QuantizationMetrics, QuantizationWarning
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
    plain, quick, small = (regard.load(folder, precision=name) for name in (None, "float32", "int8"))
    assert not kinds(plain) & {PackedLinear, OneDnnLinear, TorchLinear, VnniLinear, FbgemmLinear}
    assert kinds(quick) & ({PackedLinear} if available() else {OneDnnLinear, TorchLinear})
    assert kinds(small) & ({PackedLinear} if available() else {VnniLinear, FbgemmLinear})


def test_without_native_library_torch_does_the_work(folder, monkeypatch):
    without_native_library(monkeypatch)
    quick, small = (regard.load(folder, precision=name) for name in ("float32", "int8"))
    assert kinds(quick) & {OneDnnLinear, TorchLinear}
    assert kinds(small) & {VnniLinear, FbgemmLinear}


def test_what_does_not_go_together_is_said(folder, tmp_path):
    with pytest.raises(ValueError, match="'int4': expected one of float64, bfloat16, float16, float32, int8"):
        regard.load(folder, precision="int4")
    with pytest.raises(ValueError, match="weights cannot be saved in 'int8' here: use `regard convert --precision`"):
        regard.load(folder).save(tmp_path / "again", precision="int8")
    with pytest.raises(ValueError, match="no weights to save"):
        regard.load(folder, precision="int8").save(tmp_path / "again")


def test_fp32_writes_what_the_plain_network_writes(command, folder):
    plain = regard.load(folder)
    written = plain.translate("the dog") if command == "translate" else plain.generate("the dog", max_new_tokens=8)
    limit = [] if command == "translate" else ["--max-new-tokens", 8]
    assert run(command, folder, "the dog", "--precision", "float32", *limit).out == written.text + "\n"


def test_a_folder_in_bytes_is_smaller_and_runs_in_bytes(command, folder, tmp_path, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog runs\nthe cat\n\na man sleeps\n")
    called = run("convert", folder, tmp_path / "small", "--precision", "int8", "--calibration", texts, "--force")
    assert called.code == 0
    weights = "model.safetensors"
    assert (tmp_path / "small" / weights).stat().st_size < 0.6 * (folder / weights).stat().st_size
    record = json.loads((tmp_path / "small" / "regard.json").read_text())["quantization"]
    assert record["precision"] == "int8"
    assert record["quantization_error"]["dataset"] == "texts.txt"
    assert f"cosine similarity {record['quantization_error']['cosine_similarity']:.4f}" in called.err
    calls = []
    load = regard.model.load
    monkeypatch.setattr(regard.model, "load", lambda *args, **options: calls.append(options) or load(*args, **options))
    assert run(command, tmp_path / "small", "the dog", "--max-new-tokens", 4).code == 0
    assert calls[0]["precision"].value == "int8"


def test_the_loss_that_is_printed_is_the_loss_measured(command, folder, tmp_path):
    """Measured once more, on the same texts, between the two folders."""
    from regard.engine.quantization_error import measure_quantization_error, read_quantization_record
    from regard.tasks.calibration import samples_from_texts

    texts = tmp_path / "texts.txt"
    texts.write_text("the dog runs\nthe cat\na man sleeps\n")
    run("convert", folder, tmp_path / "small", "--precision", "int8", "--calibration", texts, "--force")
    plain, small = regard.load(folder), regard.load(tmp_path / "small", precision="int8")
    probes = samples_from_texts(plain.network, plain.tokenizer, plain.generation_config, texts.read_text().splitlines())
    again = measure_quantization_error(plain.network, small.network, probes, "texts.txt")
    assert read_quantization_record(ModelFolder(tmp_path / "small"))[1] == again
    assert again.cosine_similarity < 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calibration", "texts.txt"], "--calibration requires --precision int8"),
        (["--measure", "texts.txt", "--precision", "float16"], "--calibration requires --precision int8"),
        (["--precision", "int8", "--dtype", "float16"], "--dtype"),
        (["--precision", "int8", "--calibration", "nowhere.txt"], "'nowhere.txt' does not exist"),
    ],
)
def test_wrong_calls_write_nothing(folder, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the dog\n")
    called = run("convert", folder, tmp_path / "same", *words)
    assert called.code == 2
    assert message in " ".join(called.err.replace("│", " ").split())
    assert not (tmp_path / "same").exists()


def test_a_folder_without_texts_to_measure_is_in_bytes_all_the_same(folder, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    called = run("convert", folder, tmp_path / "small", "--precision", "int8", "--calibration", tmp_path / "empty.txt")
    assert called.code == 0
    assert "was not measured" in called.err
    assert json.loads((tmp_path / "small" / "regard.json").read_text())["quantization"] == {
        "precision": "int8",
        "quantization_error": None,
    }


def test_what_is_written_over_is_no_longer_in_bytes(folder, tmp_path):
    run("convert", folder, tmp_path / "again", "--precision", "int8", "--force")
    run("convert", folder, tmp_path / "again", "--force")
    assert ModelFolder(tmp_path / "again").info == {}
    assert not (tmp_path / "again" / "regard.json").exists()


def test_int8_that_changes_the_predictions_is_refused(folder, tmp_path):
    """The weights are random: all tokens are about equally likely, and int8 changes which is the most likely one."""
    called = run_refused("convert", folder, tmp_path / "small", "--precision", "int8")
    assert "int8 changes what this model predicts: the most likely token is the same for" in called
    assert "--force" in called
    assert not (tmp_path / "small").exists(), "nothing is written"
    assert run("convert", folder, tmp_path / "small", "--precision", "int8", "--force").code == 0
    record = json.loads((tmp_path / "small" / "regard.json").read_text())["quantization"]
    assert record["quantization_error"]["top1_agreement"] < 0.95


def run_refused(*words):
    with pytest.raises(ValueError, match="int8 changes") as error:
        run(*words)
    return str(error.value)


def test_int8_that_is_made_while_loading_warns(folder, tmp_path, command):
    with pytest.warns(QuantizationWarning, match="Texts may be wrong: use float32"):
        regard.load(folder, precision="int8")
    called = run(command, folder, "the dog", "--precision", "int8", "--max-new-tokens", 4)
    assert called.code == 0
    assert called.err.startswith("warning: int8 changes what this model predicts")
    run("convert", folder, tmp_path / "small", "--precision", "int8", "--force")
    with pytest.warns(QuantizationWarning, match="Texts may be wrong"):
        regard.load(tmp_path / "small", precision="int8")


@pytest.mark.parametrize(("generates", "agreement", "cosine", "fault"), [
    (True, 0.949, 1.0, "94.9% of the tokens"),
    (True, 0.95, 0.5, None),
    (False, 0.5, 0.99, None),
    (False, 1.0, 0.9899, "0.990 only"),
    (True, None, 0.98, "0.980 only"),
])  # fmt: skip
def test_limits_of_the_quantization_error(generates, agreement, cosine, fault):
    found = QuantizationMetrics("texts", 10, cosine, agreement, 0.1).fault(generates)
    assert (found is None) if fault is None else (fault in found)
