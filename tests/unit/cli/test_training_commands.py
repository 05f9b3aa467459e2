import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner
from unit.training.recipes import load_recipe
from unit.training.tiny_data import write_recipe

import regard
from regard.cli import demo
from regard.cli.main import app
from regard.families.transformer import transformer_2017
from regard.training.losses.cross_entropy import CHUNK_LOGITS
from regard.training.recipe.dry_run import describe_run, estimate_memory
from regard.transformer.summary import count_parameters


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def main(*words, folder):
    """The command as the shell runs it, with its exit code."""
    command = [sys.executable, "-c", "from regard.cli.main import main; main()", *map(str, words)]
    path = {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1", "PATH": ""}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=path, cwd=folder)


def test_train_plot_and_resume(tmp_path):
    """The result goes to standard output, everything else to standard error."""
    write_recipe(tmp_path)
    trained = main("train", "recipe.toml", "training.steps=4", folder=tmp_path)
    assert (trained.returncode, trained.stdout) == (0, "runs/recipe/best\n"), trained.stderr
    assert "training: step 0 of 4" in trained.stderr
    assert "validation: loss" in trained.stderr
    assert regard.load(tmp_path / "runs" / "recipe" / "best").network.config.model_dim == 16
    drawn = run("plot", tmp_path / "runs" / "recipe")
    assert drawn.exit_code == 0
    assert (tmp_path / "runs" / "recipe" / "curves.svg").read_text().startswith("<?xml")
    again = run(
        "train", tmp_path / "recipe.toml", "training.steps=4", "--output", tmp_path / "runs" / "recipe", "--resume"
    )
    assert again.exit_code == 0
    assert "resuming from step 4" in again.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_person_sees_a_bar(tmp_path):
    """On a terminal: a progress bar at the bottom, messages above it, samples unchanged (`:dog:` is not an emoji)."""
    import pty

    write_recipe(tmp_path)
    for side in "ab":
        there = tmp_path / f"valid.{side}"
        there.write_text(there.read_text().replace("dog", ":dog:"))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from regard.cli.main import main; main()"]
    path = {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1", "PATH": "", "TERM": "xterm"}
    words = ["train", "recipe.toml", "training.steps=16", "tokenizer.kind=characters"]
    process = subprocess.Popen([*command, *words], stderr=theirs, stdout=subprocess.DEVNULL, env=path, cwd=tmp_path)
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # it is closed
            break
    os.close(ours)
    text = seen.decode()
    assert process.wait() == 0, text
    assert re.search(r"━+.*100%.*0:00:00.*step 16/16  loss \d\.\d{4}  [\d,]+ tokens/s", text)
    assert "step 8, validation: loss" in text
    assert ":dog:" in text


def test_exit_codes(tmp_path):
    write_recipe(tmp_path)
    wrong = main("train", "recipe.toml", "training.stesp=4", folder=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr == "error: on the command line: training.stesp: unknown key (did you mean 'steps'?)\n"
    (tmp_path / "train.b").write_text("one line\n")
    failed = main("train", "recipe.toml", folder=tmp_path)
    assert failed.returncode == 1
    assert "train.b" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    path = write_recipe(tmp_path)
    before = sorted(tmp_path.iterdir())
    shown = run("train", path, "training.steps=100", "--dry-run")
    assert shown.exit_code == 0
    assert tomllib.loads(shown.stdout)["training"]["steps"] == 100  # the resolved recipe, with remarks
    design = transformer_2017(vocabulary=40, layers=(1, 1), model_dim=16, heads=2, inner_dim=24)
    assert f"# parameters    {count_parameters(design):,} at most" in shown.stdout
    assert "# steps         100 optimizer steps of at most" in shown.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_dry_run_looks_for_the_files(tmp_path):
    path = write_recipe(tmp_path)
    (tmp_path / "valid.b").unlink()
    with pytest.raises(ValueError, match=r"data\.valid: file not found: .*valid\.b"):
        describe_run(load_recipe(path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("training.device=gpu", "training.device = 'gpu' is not available on this machine"),
        ("objective.distillation={teacher='nowhere'}", "objective.distillation.teacher: no directory "),
        ("data.train=['train.a']", "train.a. Use tables (.tsv, .csv) or JSON Lines (.jsonl) with "),
        ("data.columns={txt=3}", "data.columns: "),
        ("training.freeze=['encodr']", "training.freeze: the network has no module 'encodr'"),
        ("network.heads=3", "[network]: "),
        (
            "network.family=bertt",
            "network.family: unknown family 'bertt' (did you mean 'bert'?); available: ",
        ),
        ("tokenizer.size=5", "tokenizer.size: a vocabulary of 5 tokens is too small: the special tokens alone are 4"),
        ("training.best_metric=blue", "training.best_metric: unknown metric 'blue' for task 'translate'"),
        ("data.valid=['gone.a', 'valid.b']", "data.valid: file not found: "),
    ],
)
@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_what_cannot_be_done_is_a_wrong_call_and_told_before_anything_is(tmp_path, change, said, how):
    write_recipe(tmp_path)
    before = sorted(tmp_path.iterdir())
    wrong = main("train", "recipe.toml", change, *how, folder=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert said in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_the_estimate_knows_that_scores_are_never_held_all_at_once(tmp_path):
    path = write_recipe(tmp_path)
    estimates = []
    for size in (40, 64_000):
        chosen = load_recipe(path, {"tokenizer.size": size, "training.batch_tokens": 8192})
        estimates.append(
            estimate_memory(chosen, transformer_2017(vocabulary=size, layers=(1, 1), model_dim=16, heads=2))[1]
        )
    assert estimates[1] - estimates[0] < 3 * 4 * CHUNK_LOGITS < 0.1 * (4 * 8192 * 64_000)


def test_ready_recipes_are_listed_shown_and_copied(tmp_path):
    listed = run("recipes")
    assert listed.exit_code == 0
    assert {line.split()[0] for line in listed.stdout.splitlines()} >= {"translate", "generate", "fill", "distill"}
    shown = run("recipes", "translate")
    assert tomllib.loads(shown.stdout)["task"] == "translate"
    assert run("recipes", "translate", "--output", tmp_path).exit_code == 0
    assert (tmp_path / "translate.toml").read_text() == shown.stdout
    again = run("recipes", "translate", "--copy", tmp_path)  # the former name of the option
    assert again.exit_code == 2
    assert "already exists" in " ".join(again.stderr.split())
    assert run("recipes", "translat").exit_code == 2


def test_plot_needs_a_run(tmp_path):
    assert run("plot", tmp_path).exit_code == 2
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    assert run("plot", tmp_path, "--output", tmp_path / "a.gif").exit_code == 2


@pytest.mark.parametrize("agreement", [0.0, 1.0])
def test_the_estimate_of_memory_is_of_the_right_size(tmp_path, agreement):
    """The estimate is between one and three times what torch saves for the backward pass."""
    import torch
    from unit.training.tiny_data import batch, ids, random_rows

    from regard.training.objectives.rdrop_objective import RDrop
    from regard.training.objectives.translate import Seq2SeqLM
    from regard.transformer.network import build

    path = write_recipe(tmp_path)
    change = {"network.model_dim": 64, "network.inner_dim": 128, "tokenizer.size": 500, "training.batch_tokens": 320}
    recipe = load_recipe(path, change | {"objective.rdrop": agreement})
    sizes = dict(vocabulary=500, layers=(1, 1), model_dim=64, heads=2, inner_dim=128, dropout=0.2)
    network = build(transformer_2017(**sizes)).train()
    given = batch(source=ids(*random_rows([20] * 16, 500)), target=ids(*random_rows([20] * 16, 500, 1)))
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    own = {value.untyped_storage().data_ptr() for value in network.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        asked = Seq2SeqLM(decoder_start=1)
        loss = (RDrop(objective=asked, alpha=agreement) if agreement else asked).loss(network, given)
    measured = sum(size for place, size in kept.items() if place not in own)
    assert loss.count == 320
    estimate = estimate_memory(recipe, network.config)[1]
    assert measured < estimate < 3 * measured


def test_the_demo_changes_no_file_of_somebody(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TRAIN_DAYS", 60)
    (tmp_path / "recipe.toml").write_text("# mine")
    refused = run("demo", "--output", tmp_path)
    assert refused.exit_code == 2
    assert "holds recipe.toml with a content of its own; nothing was changed" in " ".join(refused.stderr.split())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("recipe.toml", "# mine")]
