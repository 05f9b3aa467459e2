"""Full disk and read-only directory: the last checkpoint survives, the error names it, and --resume is exact."""

import errno
import os
import shutil

import pytest
from unit.training.recipes import train
from unit.training.tiny_data import files_of, write_recipe

from regard.training.run import state


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Flaky:
    """System calls that fail from a certain number on."""

    NAMES = ("fsync", "mkdir", "rename", "truncate", "replace")

    def __init__(self, monkeypatch, working):
        self.left, self.patch = working, monkeypatch
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))

    def wrap(self, real):
        def call(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                full_disk()
            return real(*args, **kwargs)

        return call


def test_a_run_on_a_full_disk_goes_on_when_there_is_room_again(tmp_path, monkeypatch):
    """System calls fail from a certain number on; after --resume the run equals one that never failed."""
    recipe = write_recipe(tmp_path)
    change = {"training.steps": 8, "training.evaluate_every": 4, "training.save_every": 2}
    train(recipe, change, output=tmp_path / "whole")
    expected = files_of(tmp_path / "whole")
    for number, working in enumerate((5, 23, 41)):  # fail while preparing, at a checkpoint, at the best model
        run = tmp_path / f"run-{number}"
        shutil.copytree(tmp_path / "whole" / "cache", run / "cache")
        with monkeypatch.context() as patch:
            Flaky(patch, working)
            with pytest.raises(OSError, match="No space left") as caught:
                train(recipe, change, output=run, resume=True)
        good = state.list_checkpoints(run / "checkpoints")
        assert all(state.load_checkpoint(path).progress.step == step for step, path in good.items())
        if str(caught.value).startswith("step"):
            said = f"Last good checkpoint: step {list(good)[-1]}" if good else "No checkpoint was saved yet"
            assert said in str(caught.value)
        train(recipe, change, output=run, resume=True)
        assert files_of(run) == expected


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    """Tests may run as superuser, for whom no directory is read-only, so the system call is patched."""
    recipe = write_recipe(tmp_path)

    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(PermissionError, match=r"Permission denied: .*somewhere"):
        train(recipe, output=tmp_path / "somewhere")


def test_the_state_of_a_folder_that_becomes_read_only(tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path)
    change = {"training.steps": 6, "training.save_every": 2}
    real = os.mkdir

    def refuse(path, *args, **kwargs):
        if "step-00000004" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(OSError, match=r"step 4: .*Read-only file system.*Last good checkpoint: step 2"):
        train(recipe, change, output=tmp_path / "run")
    assert list(state.list_checkpoints(tmp_path / "run" / "checkpoints")) == [2]
