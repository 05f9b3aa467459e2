import json
import shutil
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.cli import demo
from regard.cli.main import OLD_OPTIONS, app, rename_options
from regard.families.registry import FAMILIES, presets
from regard.transformer.network import build

SIZES = dict(vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    save(build(FAMILIES["bert"].read_config(SIZES, "BertForMaskedLM")[0]), folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def main(*words):
    """The command as the shell runs it, with its exit code."""
    command = [sys.executable, "-c", "from regard.cli.main import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy():
    """Neither `regard --help` nor that of any command: each takes a fifth of a second."""
    code = (
        "import sys, regard.cli.main as m\n"
        "for words in [[], *([command.name] for command in m.app.registered_commands)]:\n"
        "    try: m.app([*words, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0, words\n"
        "    heavy = {'torch', 'numpy', 'pydantic', 'rich', 'safetensors', 'tokenizers'} & set(sys.modules)\n"
        "    assert not heavy, (words, heavy)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.count("Usage:") == 1 + len(app.registered_commands) >= 11


def test_help_lists_current_option_names_only():
    """The former names in OLD_OPTIONS are accepted, but not shown."""
    for command, renamed in OLD_OPTIONS.items():
        shown = run(command, "--help").stdout.replace(",", " ").split()
        for old, new in renamed.items():
            assert old not in shown
            assert new in shown
    for command in ("demo", "plot", "recipes", "train"):
        assert "-o" in run(command, "--help").stdout.replace(",", " ").split()


def test_former_option_names_are_replaced():
    renamed = {"--folder": "--output"}
    assert rename_options(["a", "--folder", "b"], renamed) == ["a", "--output", "b"]
    assert rename_options(["--folder=b=c", "--", "--folder"], renamed) == ["--output=b=c", "--", "--folder"]


def test_an_unknown_option_is_a_wrong_call(model, tmp_path):
    shown = run("convert", model, tmp_path / "copy", "--dtype", "bfloat16")
    assert shown.exit_code == 2
    assert "--dtype" in shown.stderr
    assert not (tmp_path / "copy").exists()


def test_import_regard_does_not_import_torch():
    code = "import sys, regard; assert 'torch' not in sys.modules; assert 'load' in dir(regard)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_show_a_preset():
    shown = run("show", "gpt2")
    assert shown.exit_code == 0
    assert "DecoderOnly  124,439,808" in shown.stdout
    assert "0…11 Block" in shown.stdout
    assert "weight 50257×768" in shown.stdout
    assert "output Tokens  tied" in shown.stdout


def test_show_without_a_name_lists_the_presets():
    shown = run("show")
    assert [line.split()[0] for line in shown.stdout.splitlines()] == presets()


def test_show_a_folder_with_its_report(model):
    shown = run("show", model, "--tensors")
    assert shown.exit_code == 0
    assert "EncoderOnly" in shown.stdout
    assert "loaded" in shown.stderr


def test_show_as_json(model):
    shown = json.loads(run("show", model, "--json").stdout)
    network, _ = load(model)
    assert shown["parameters"] == sum(value.numel() for value in network.parameters())
    assert shown["network"]["kind"] == "EncoderOnly"


def test_show_of_nothing_known_is_a_wrong_call():
    shown = run("show", "bert-bas")
    assert shown.exit_code == 2
    assert "bert-base" in shown.stderr


def test_a_broken_folder_is_a_failure(model):
    (model / "config.json").write_text("{")
    shown = main("show", model)
    assert shown.returncode == 1
    assert "config.json, line 1" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_convert_keeps_every_tensor_and_what_lies_beside(model, tmp_path):
    assert run("convert", model, tmp_path / "copy").exit_code == 0
    one, other = load(model)[0].state_dict(), load(tmp_path / "copy")[0].state_dict()
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "copy" / "tokenizer.json").read_text() == "{}"


def test_convert_copies_and_lists_every_companion(model, tmp_path):
    (model / "target").mkdir()
    companions = ["generation_config.json", "target/tokenizer.json", "target_vocab.json", "tokenizer.json"]
    for number, name in enumerate(companions):
        (model / name).write_text(json.dumps({"number": number}))
    (model / "regard.json").write_text('{"task": "fill", "key_of_another_program": [1]}')
    (model / "engine.json").write_text('{"precision": "int8", "quantization_error": null}')
    (model / "notes.txt").write_text("not copied")
    names = "generation_config.json, regard.json, target/tokenizer.json, target_vocab.json, tokenizer.json"
    shown = run("convert", model, tmp_path / "copy")
    assert shown.stderr.splitlines()[-1] == f"{tmp_path / 'copy'}: saved in the layout of bert, with {names}"
    for name in companions:
        assert (tmp_path / "copy" / name).read_bytes() == (model / name).read_bytes()
    info = json.loads((tmp_path / "copy" / "regard.json").read_text())
    assert info == {"format_version": 1, "task": "fill", "key_of_another_program": [1]}
    assert not (tmp_path / "copy" / "engine.json").exists()  # it is about the weights of the source
    assert not (tmp_path / "copy" / "notes.txt").exists()


def test_convert_to_another_type_and_to_our_own_names(model, tmp_path):
    assert run("convert", model, tmp_path / "half", "--precision", "bfloat16").exit_code == 0
    assert {value.dtype for value in load(tmp_path / "half")[0].parameters()} == {torch.bfloat16}
    for layout in ("regard", "own"):  # "own" is the former name
        assert run("convert", model, tmp_path / layout, "--layout", layout).exit_code == 0
        assert json.loads((tmp_path / layout / "config.json").read_text())["model_type"] == "regard"
    back = run("convert", tmp_path / "regard", tmp_path / "back")
    assert "layout of bert" in back.stderr
    one, other = load(model)[0], load(tmp_path / "back")[0]
    assert one.config == other.config
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_convert_does_not_write_over_what_is_there(model, tmp_path):
    shutil.copytree(model, tmp_path / "there")
    assert run("convert", model, tmp_path / "there").exit_code == 2
    assert run("convert", model, tmp_path / "there", "--force").exit_code == 0
    assert run("convert", model, model, "--force").exit_code == 2


def test_demo_leaves_a_model_behind_and_does_not_train_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TRAIN_DAYS", 600)
    monkeypatch.setattr(demo, "TEST_DAYS", 12)
    monkeypatch.setattr(demo, "VALID_DAYS", 12)  # an untrained network decodes to the limit, at each evaluation
    monkeypatch.setattr(demo, "RECIPE", demo.RECIPE.replace("steps = 750", "steps = 2"))
    assert run("demo", "--output", tmp_path / "made", "--steps", "1").exit_code == 0
    shown = run("demo", "-o", tmp_path / "made")
    assert "trained before" not in shown.stderr  # one step was not all of it
    assert "resuming from step 1" in shown.stderr
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.count("of 12 exactly right") == 2
    best = tmp_path / "made" / "run" / "best"
    assert json.loads((best / "config.json").read_text())["model_type"] == "marian"
    assert run("show", best).exit_code == 0
    assert run("translate", best, "1 May 2000").exit_code == 0
    assert run("tokenize", best, "1 May 2000").exit_code == 0
    again = run("demo", "--folder", tmp_path / "made")
    assert "trained before" in again.stderr
    assert again.stdout == shown.stdout


@pytest.mark.slow
def test_the_demo_reads_dates(tmp_path):
    shown = run("demo", "-o", tmp_path / "made")
    seen, unseen = (float(line.split(": ")[1].split()[0]) for line in shown.stdout.splitlines())
    assert seen >= 0.99
    assert unseen >= 0.8
