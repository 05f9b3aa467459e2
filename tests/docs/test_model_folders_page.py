"""The code of docs/model-folders.md is executed, and its tables are those of the code."""

import re
from pathlib import Path

from unit.training.tiny_data import write_recipe

import regard
from regard.checkpoint import model_folder, tensor_files

PAGE = (Path(__file__).parents[2] / "docs" / "model-folders.md").read_text(encoding="utf-8")
FILES, KEYS = PAGE.split("## regard.json")


def test_python_blocks_run(tmp_path, monkeypatch):
    regard.train(write_recipe(tmp_path), {"training.steps": 2}, output=tmp_path / "run")
    (tmp_path / "path" / "to").mkdir(parents=True)
    (tmp_path / "run" / "best").rename(tmp_path / "path" / "to" / "model")
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "docs/model-folders.md", "exec"), names)
    assert names["translation"] == names["model"].translate("red dog runs")
    assert names["folder"].config["model_type"] == "marian"
    assert names["folder"].info["task"] == "translate"
    assert {*names["folder"].companions().files} == {
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    }
    written = {path.name for path in (tmp_path / "path" / "to" / "copy").iterdir()}
    assert written == set(re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (`.*?) \|", FILES, flags=re.MULTILINE))))


def test_every_file_is_on_the_page():
    names = {model_folder.CONFIG_FILE, model_folder.INFO_FILE, tensor_files.WEIGHTS_FILE}
    names |= {tensor_files.PICKLE_WEIGHTS_FILE, f"{tensor_files.WEIGHTS_FILE}.index.json"}
    names |= {name for name in model_folder.COMPANION_FILES if "/" not in name} - {"shortlist.safetensors"}
    assert names <= set(re.findall(r"`([\w.-]+)`", FILES))
    assert f"`{model_folder.OLD_QUANTIZATION_FILE}`" in KEYS


def test_every_key_is_in_the_table_in_its_order():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", KEYS, flags=re.MULTILINE)
    kinds = {
        "int": "integer",
        "str": "string",
        "float": "number",
        "list[str]": "list of strings",
        "dict[str, str]": "object of strings",
        "dict[str, int]": "object of integers",
        "dict[str, float]": "object of numbers",
        "dict[str, Any]": "object",
        "QuantizationRecord": "object",
        "AnswerFormat": "object",
    }
    annotations = model_folder.ModelInfo.__annotations__.items()
    assert rows == [(name, kinds[annotation.__forward_arg__]) for name, annotation in annotations]
    assert f"version of this schema: {model_folder.FORMAT_VERSION} |" in KEYS
    assert set(re.findall(r"`(\w+)`", KEYS)) >= set(model_folder.QuantizationRecord.__annotations__)
