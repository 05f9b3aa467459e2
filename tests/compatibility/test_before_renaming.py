"""Folders, runs and recipes written before the names changed still open, resume, and give the same bits.

`before_renaming.tar.xz` was made by commit f2df6b6 on one thread: eight runs (one for each task, and a distillation),
each stopped after step 13 of 24, and three model folders (a published layout, our own names, int8 with a shortlist).
`expected.json` holds what that version made of them: digests of all tensors of the last state and of the best network,
every line of metrics, every translation with its score. `{HERE}` stands for the folder they were made in.
"""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regard

ARCHIVE = Path(__file__).with_name("before_renaming.tar.xz")
RUNS = ("translate", "distill", "fill", "generate", "summarize", "classify", "tag", "answer")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The archive, unpacked, with its paths pointing to where it is now."""
    place = tmp_path_factory.mktemp("before_renaming")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    for path in place.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".toml", ""):
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("{HERE}", str(place / "runs")), encoding="utf-8")
    return place


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
    found = {}
    for name, tensor in sorted(load_file(path).items()):
        raw = tensor.contiguous().view(torch.uint8).numpy() if tensor.ndim else tensor.numpy()
        found[name] = hashlib.sha256(raw.tobytes()).hexdigest()[:16]
    return found


def last_state(run):
    return sorted((run / "checkpoints").glob("step-*"))[-1]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_bit_for_bit(name, here, expected, one_thread, capsys):
    folder, wanted = here / "runs" / name, expected[name]
    best = regard.train(folder / "recipe.toml", folder=folder / "run", resume=True)
    said = capsys.readouterr().err
    assert "going on from step 13" in said
    assert "not the one that this run began with" not in said
    assert "begun once more" not in said
    assert "looked for anew" not in said
    found = json.loads((last_state(folder / "run") / "state.json").read_text())
    machine = {key: found["machine"][key] for key in wanted["machine"]}
    if machine != wanted["machine"]:
        pytest.skip(f"bits are those of another machine: {wanted['machine']}, and this one is {machine}")
    assert found["progress"] == wanted["progress"]
    assert digests(last_state(folder / "run") / "state.safetensors") == wanted["state"]
    assert digests(best / "model.safetensors") == wanted["best"]
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines == wanted["metrics"]


def same(found, wanted):
    assert [one.text for one in found] == [one["text"] for one in wanted]
    assert [one.score for one in found] == pytest.approx([one["score"] for one in wanted], abs=1e-5)


@pytest.mark.parametrize(
    ("folder", "kind", "precision"),
    [("marian", "float32", None), ("marian", "engine", "fp32"), ("own", "float32", None), ("int8", "int8", "int8")],
)
def test_a_model_folder_opens_and_translates_as_before(folder, kind, precision, here, expected):
    model = regard.load(here / "models" / folder, precision=precision)
    same(model.translate(expected["marian"]["lines"], beam=2), expected[folder][kind])


def test_a_shortlist_is_read_as_before(here, expected):
    model = regard.load(here / "models" / "int8", precision="int8")
    same(model.translate(expected["marian"]["lines"], shortlist=True), expected["int8"]["shortlist"])
