"""The pages about vectors and images: every command is called, their Python is executed."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from unit.checkpoint.folders import random_network
from unit.cli.runner import run
from unit.data.image_samples import random_image
from unit.tasks.sentence_encoders import encoder_folder, write_modules
from unit.test_save_and_use import CASES
from unit.tokenization.vocabularies import LAYOUTS

from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tokenization.tokenizer_loader import load_tokenizer

PAGES = {name: (Path(__file__).parents[2] / f"docs/{name}.md").read_text("utf-8") for name in ("embeddings", "images")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The models that the pages speak of, small and untrained, and their files."""
    place = tmp_path_factory.mktemp("page")
    (place / "models").mkdir()
    write_modules(encoder_folder(place / "models/minilm"), ["Normalize"])
    for name, architecture in (("vit", "ViTForImageClassification"), ("clip", "CLIPModel")):
        folder, sizes = place / "models" / name, dict(CASES[name][2])
        folder.mkdir()
        if name == "clip":
            LAYOUTS["clip"][0](folder)
            (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
            tokenizer = load_tokenizer(folder)
            sizes["text_config"] = sizes["text_config"] | {
                "vocab_size": len(tokenizer), "eos_token_id": tokenizer.special_ids.eos, "max_position_embeddings": 60
            }  # fmt: skip
        values = sizes | {"architectures": [architecture], "model_type": name}
        save(random_network(FAMILIES[name].read_config(values)[0]), folder)
    (place / "texts.txt").write_text("A man rides a horse.\nIt rains.\nTwo dogs at the sea.\nNobody knows.\n")
    random_image(30, 40).save(place / "image.png")
    (place / "pictures").mkdir()
    for number in range(2):
        shutil.copy(place / "image.png", place / f"pictures/{number}.png")
    return place


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_python_do_what_they_say(place, monkeypatch, page):
    monkeypatch.chdir(place)
    blocks = PAGES[page].split("```")[1::2]
    lines = [line for block in blocks if block.startswith("\n") for line in block.splitlines()[1:]]
    for line in lines:
        words = shlex.split(line)
        assert words.pop(0) == "regard"
        called = run(*words)
        assert called.code == 0, f"{line}: {called.err}"
        if "-o" in words:
            assert Path(words[words.index("-o") + 1]).is_file()
        elif words[0] == "search":
            assert len(called.lines) == (3 if "-n" in words else 4)
        elif "--index" not in words:
            assert len(called.lines) == (2 if "pictures" in words else 1)
    names = {}
    for block in blocks:
        if block.startswith("python"):
            exec(compile(block.removeprefix("python"), f"docs/{page}.md", "exec"), names)
    if page == "embeddings":
        assert names["words"][1].text == "man"
        assert names["best"].text in (place / "texts.txt").read_text()
    else:
        assert set(names["scores"]) == {"a dog", "a cat"}
        assert len(names["image"]) == len(names["text"])
