"""Batches of texts for the network, and plain errors for what it cannot compute."""

import os
import stat
import subprocess
import sys

import pytest
import torch
from unit.tasks import models

import regard

SCRIPT = """
import sys, torch, regard
network = regard.load(sys.argv[1]).network
for tokens in ([[3, 4]], torch.tensor([[3, 999]]), torch.tensor([[-1, 3]])):
    try:
        network(tokens)
    except ValueError as error:
        print(error)
"""


def test_a_batch_is_the_text_alone(tmp_path):
    model = regard.load(models.continuing(tmp_path / "model"))
    texts = ["the small dog sees the man", "a man"]
    for side in ("right", "left"):
        batch = model.encode_batch(texts, padding_side=side)
        assert batch["mask"].dtype == torch.bool
        assert batch["tokens"].shape == batch["mask"].shape
        assert not batch["mask"].all()
        logits = model.network(**batch).logits
        for row, text in enumerate(texts):
            alone = model.network(**model.encode_batch([text])).logits[0]
            torch.testing.assert_close(logits[row][batch["mask"][row]], alone, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="expected 'right' or 'left'"):
        model.encode_batch(texts, padding_side="middle")


def test_a_batch_of_sources(tmp_path):
    model = regard.load(models.translating(tmp_path / "model"))
    batch = model.encode_batch(["the small dog", "a"])
    assert set(batch) == {"source", "mask"}
    assert model.network(**batch, target=torch.tensor([[1], [1]])).logits.shape[:2] == (2, 1)


def test_lists_and_ids_out_of_range_are_named(tmp_path):
    """Without the checked annotations of the tests, as for a user."""
    folder = models.continuing(tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "expected a tensor of token ids, found list: pass torch.tensor(ids)"
    assert lines[1].startswith("token id 999 is out of range: the network has ids from 0 to ")
    assert lines[2].startswith("token id -1 is out of range")


def test_precision_is_a_text_and_a_missing_device_is_named(tmp_path):
    folder = models.continuing(tmp_path / "model")
    assert regard.load(folder, precision="float32").generate("a", max_new_tokens=2).stopped
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"device 'cuda' is not available: .*; use device='cpu'"):
            regard.load(folder, device="cuda")
    with pytest.raises(ValueError, match="device 'gpu' is not available"):
        regard.load(folder, device="gpu")


def test_saving_over_something_else_has_to_be_wanted(tmp_path):
    model = regard.load(models.continuing(tmp_path / "model"))
    target = tmp_path / "target"
    model.save(target)
    model.save(target)  # the same model again
    model.save(tmp_path / "model")  # its own folder
    other = regard.load(models.translating(tmp_path / "other"))
    with pytest.raises(FileExistsError, match=r"target holds another model: choose another folder, or pass overwrite"):
        other.save(target)
    other.save(target, overwrite=True)
    assert regard.load(target).network.config == other.network.config
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("Monday")
    with pytest.raises(FileExistsError, match="notes holds other files"):
        model.save(notes)
    assert [path.name for path in notes.iterdir()] == ["diary.txt"]
    model.save(notes, overwrite=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no umask")
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_all_files_of_a_model_follow_the_umask(tmp_path, umask):
    model = regard.load(models.continuing(tmp_path / "model"))
    before = os.umask(umask)
    try:
        model.save(tmp_path / "copy")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "copy").iterdir()}
    assert "model.safetensors" in modes
    assert set(modes.values()) == {0o666 & ~umask}, modes
