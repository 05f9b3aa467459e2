"""Run the code blocks of docs/tokenizers.md in order."""

import re
from pathlib import Path

import transformers
from unit.tokenization.vocabularies import LAYOUTS, corpus

PAGE = (Path(__file__).parents[2] / "docs/tokenizers.md").read_text(encoding="utf-8")


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    """`path/to/model` is a small BERT vocabulary."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "path/to/model"
    folder.mkdir(parents=True)
    LAYOUTS["bert"][0](folder)
    for seed, name in enumerate(("train.en", "train.de")):
        (tmp_path / name).write_text("\n".join(corpus(300, seed=seed)), "utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "tokenizers.md", "exec"), names)
    text = "a man <s>"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "path/to/tokenizer")
    assert theirs(text, split_special_tokens=True)["input_ids"] == names["shared"].encode(text).ids
    assert names["separate"].target is names["german"]
    assert names["tokenizer"].special_ids.mask == names["tokenizer"].token_to_id("[MASK]") == 4


def test_commands_that_it_names_exist():
    from typer.main import get_command

    from regard.cli.main import app

    known = get_command(app).commands["tokenize"]
    options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for line in re.findall(r"^regard .*$", PAGE, flags=re.MULTILINE):
        assert line.startswith("regard tokenize ")
        assert set(re.findall(r"--[a-z-]+", line)) <= options
