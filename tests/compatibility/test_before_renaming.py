"""Model folders, runs and recipes of version 0.1, written before the names changed, still open and give the same bits.

`before_renaming.tar.xz` was made by commit f2df6b6 on one thread: eight runs (one for each task, and a distillation),
each stopped after step 13 of 24, and three model folders (a published layout, our own names, int8 with a shortlist).
`expected.json` holds the results of that version: digests of all tensors of the last checkpoint and of the best model,
every line of metrics, every translation with its score. `{HERE}` stands for the folder they were made in.
"""

import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import regard
from regard.checkpoint.model_folder import ModelFolder
from regard.cli.main import app
from regard.engine.linear import Precision
from regard.engine.quantization_error import read_quantization_record
from regard.training.recipe.legacy_keys import RENAMED_ENVIRONMENT, RENAMED_METRICS, RENAMED_PROGRESS
from regard.training.run.curves import read_curves
from regard.training.run.run_dir import read_metrics

ARCHIVE = Path(__file__).with_name("before_renaming.tar.xz")
RUNS = ("translate", "distill", "fill", "generate", "summarize", "classify", "tag", "answer")


def unpack(folder):
    """Unpack the archive, with its paths pointing to the new folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".toml", ""):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("{HERE}", str(folder / "runs")), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("before_renaming"))


@pytest.fixture(scope="module")
def expected(here):
    return json.loads((here / "expected.json").read_text())


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def digests(path):
    result = {}
    for name, tensor in sorted(load_file(path).items()):
        raw = tensor.contiguous().view(torch.uint8).numpy() if tensor.ndim else tensor.numpy()
        result[name] = hashlib.sha256(raw.tobytes()).hexdigest()[:16]
    return result


def last_checkpoint(run):
    return sorted((run / "checkpoints").glob("step-*"))[-1]


def renamed(values, names):
    """The values of the old version under the names that they have now."""
    return {names.get(name, name): value for name, value in values.items()}


OTHER_DECODING = ("valid_f1", "valid_exact_match")
"""Metrics of answers, which are found by another search now."""


def only(values, other):
    """The metrics of a line that the other line has too: tasks have more metrics now, or others."""
    return {name: value for name, value in values.items() if name in other and name not in OTHER_DECODING}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_resumes_bit_for_bit(name, here, expected, one_thread, capsys):
    folder, wanted = here / "runs" / name, expected[name]
    old_metrics = (folder / "run" / "metrics.jsonl").read_bytes()
    at_stop = json.loads((last_checkpoint(folder / "run") / "state.json").read_text())["progress"]
    best = regard.train(folder / "recipe.toml", output=folder / "run", resume=True)
    err = capsys.readouterr().err
    note, *log = err.splitlines()
    assert note.startswith(f"{folder / 'recipe.toml'}: renamed: ")
    assert "training.tokens is now training.batch_tokens" in note
    assert "training.report_every is now training.log_every" in note
    assert not any("is now" in line for line in log)
    assert "resuming from step 13" in log
    assert "the recipe changed" not in err
    assert "starting a new epoch" not in err
    assert "selected again" not in err
    found = json.loads((last_checkpoint(folder / "run") / "state.json").read_text())
    wanted_environment = renamed(wanted["machine"], RENAMED_ENVIRONMENT)
    environment = {key: found["environment"][key] for key in wanted_environment}
    if environment != wanted_environment:
        pytest.skip(f"bits are those of another machine: {wanted_environment}, and this one is {environment}")
    assert "results may differ" not in err
    lines = (folder / "run" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert b"".join(lines).startswith(old_metrics[: at_stop["metrics"]])  # what the old version wrote is not rewritten
    metrics = [renamed(json.loads(line), RENAMED_METRICS) for line in lines]
    wanted_metrics = [renamed(line, RENAMED_METRICS) for line in wanted["metrics"]]
    pairs = [(only(line, wanted), only(wanted, line)) for line, wanted in zip(metrics, wanted_metrics, strict=True)]
    tolerance = 2e-2 if name == "distill" else 1e-4  # in bfloat16, where the CPU has it
    for line, wanted_line in pairs:
        assert line.keys() & {"loss", "valid_loss", "averaged_steps"}
        for key, value in wanted_line.items():
            assert line[key] == pytest.approx(value, rel=tolerance, abs=tolerance), (key, wanted_line)
    if any(line != wanted_line for line, wanted_line in pairs):
        pytest.skip("equal within the tolerance; the bits are those of another model of CPU, which was not recorded")
    progress = renamed(wanted["progress"], RENAMED_PROGRESS)
    progress["random_draws"] = "by call"  # this version records what the run began with
    progress["metrics_bytes"] = sum(len(line) for line in lines if b"averaged_steps" not in line)  # of the new names
    assert found["progress"] == progress
    assert digests(last_checkpoint(folder / "run") / "state.safetensors") == wanted["state"]
    assert digests(best / "model.safetensors") == wanted["best"]


@pytest.mark.parametrize("name", ["translate", "answer"])
def test_an_old_run_is_plotted_before_and_after_it_resumes(name, tmp_path, one_thread):
    """The lines above the stop have old names, those below new ones: each metric is still one curve."""
    folder = unpack(tmp_path) / "runs" / name
    run = folder / "run"
    assert b'"rate"' in (run / "metrics.jsonl").read_bytes()
    before = curves(run)
    assert [steps[-1] for steps in (before["lr"], before["grad_norm"])] == [10, 10]
    regard.train(folder / "recipe.toml", output=run, resume=True)
    raw = (run / "metrics.jsonl").read_bytes()
    assert b'"rate"' in raw
    assert b'"lr"' in raw
    after = curves(run)
    assert after.keys() == before.keys()
    assert after["lr"] == after["grad_norm"] == after["loss"] == [5, 10, 15, 20, 24]
    done = CliRunner().invoke(app, ["plot", str(run)])
    assert done.exit_code == 0, done.output
    labels = re.findall(r">([A-Z][A-Za-z ,]*)</text>", (run / "curves.svg").read_text())
    assert labels.count("Learning rate") == labels.count("Gradient norm, before clipping") == 1
    assert not [label for label in labels if "gradient" in label or label.endswith(" exact")]


def curves(run):
    """The steps of each curve of a run."""
    points = read_curves(read_metrics(run / "metrics.jsonl"))
    return {name: [step for step, _ in curve] for name, curve in points.items()}


def check_translations(translations, wanted):
    assert [translation.text for translation in translations] == [line["text"] for line in wanted]
    assert [translation.score for translation in translations] == pytest.approx(
        [line["score"] for line in wanted], abs=1e-5
    )


@pytest.mark.parametrize(
    ("folder", "kind", "precision"),
    [("marian", "float32", None), ("marian", "engine", "float32"), ("own", "float32", None), ("int8", "int8", "int8")],
)
def test_a_model_folder_opens_and_translates_as_before(folder, kind, precision, here, expected):
    model = regard.load(here / "models" / folder, precision=precision)
    check_translations(model.translate(expected["marian"]["lines"], beam=2), expected[folder][kind])


def test_a_folder_with_a_shortlist_is_converted_without_it(here, expected, tmp_path):
    """Shortlists are no longer used: the file is ignored."""
    folder, target = here / "models" / "int8", tmp_path / "copy"
    assert (folder / "shortlist.safetensors").is_file()
    done = CliRunner().invoke(app, ["convert", str(folder), str(target), "--precision", "int8"])
    assert done.exit_code == 0, done.output
    assert not (target / "shortlist.safetensors").exists()
    model = regard.load(target, precision="int8")
    check_translations(model.translate(expected["marian"]["lines"], beam=2), expected["int8"]["int8"])


def test_a_quantization_record_is_read_as_before_and_moves_to_regard_json(here, tmp_path):
    old = here / "models" / "int8"
    precision, error = read_quantization_record(ModelFolder(old))
    assert precision is Precision.INT8
    assert error.cosine_similarity == json.loads((old / "engine.json").read_text())["loss"]["cosine"]
    done = CliRunner().invoke(app, ["convert", str(old), str(tmp_path / "new"), "--precision", "int8"])
    assert done.exit_code == 0, done.output
    assert digests(tmp_path / "new" / "model.safetensors") == digests(old / "model.safetensors")
    assert not (tmp_path / "new" / "engine.json").exists()
    assert read_quantization_record(ModelFolder(tmp_path / "new"))[0] is Precision.INT8


def test_a_copy_of_an_old_folder_has_all_that_the_folder_has(here, expected, tmp_path):
    for name in ("marian", "own"):
        regard.load(here / "models" / name).save(tmp_path / name)
        copy = regard.load(tmp_path / name)
        check_translations(copy.translate(expected["marian"]["lines"], beam=2), expected[name]["float32"])
        assert "format_version" not in ModelFolder(here / "models" / name).info
        assert ModelFolder(tmp_path / name).info == ModelFolder(here / "models" / name).info | {"format_version": 1}
    files = [folder / "marian" / "model.safetensors" for folder in (tmp_path, here / "models")]
    assert digests(files[0]) == digests(files[1])
