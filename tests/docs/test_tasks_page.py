"""The page about using a model: every command on it is called, its Python is executed."""

import re
import shlex
from pathlib import Path

import pytest
from unit.cli.runner import run
from unit.tasks import encoders, models, vocabularies

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.splitlines()]
T5 = {
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "summarization": {"prefix": "summarize: "},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The models that the page speaks of, small and untrained, and its files."""
    place = tmp_path_factory.mktemp("page")
    folders = place / "models"
    folders.mkdir()
    models.translating(folders / "en-de")
    models.translating(folders / "many", vocabularies.marian_of_many)
    models.translating(folders / "t5", config={"task_specific_params": T5})
    models.translating(folders / "mbart", vocabularies.mbart_of_25, {"forced_bos_token_id": None})
    models.continuing(folders / "stories")
    length = dict(max_position_embeddings=64)
    encoders.encoder(folders / "reviews", "BertForSequenceClassification", labels=("bad", "good"), **length)
    encoders.encoder(folders / "names", "BertForTokenClassification", labels=("O", "B-name", "I-name"), **length)
    encoders.encoder(folders / "reader", "BertForQuestionAnswering", **length)
    encoders.encoder(folders / "masked", "BertForMaskedLM", **length)
    (place / "questions.tsv").write_text("who?\tA man rides a horse.\n" * 4)
    for name in ("texts.txt", "prompts.txt"):
        (place / name).write_text("\n".join(["A man rides a horse.", "", *vocabularies.sentences(2)]) + "\n")
    return place


@pytest.mark.parametrize("line", LINES)
def test_commands_do_what_they_say(place, monkeypatch, line):
    monkeypatch.chdir(place)
    command, _, target = line.partition(" > ")
    before, _, command = command.rpartition(" | ")
    given = (place / before.removeprefix("cat ")).read_text() if before else None
    words = shlex.split(command)
    assert words.pop(0) == "regard"
    limit = ("--max-new-tokens", "9") if words[0] in ("translate", "generate") else ()
    called = run(*words, *limit, given=given)
    assert called.code == 0, called.err
    expected = 1 if "A man" in line or "Once" in line else 4
    if "--n-best" in words:
        expected = 3 * 3 + 1  # the empty line stays one
    if "--sample" not in words and "generate" not in words:
        assert len(called.lines) == expected
    assert bool(target) == (">" in line)


def test_python_runs(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "docs/tasks.md", "exec"), names)
    assert len(names["best"].alternatives) == 2
    assert names["piece"].text in capsys.readouterr().out


def test_every_field_of_the_json_is_explained():
    from regard.tasks.generate import Generation
    from regard.tasks.translate import Translation

    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, flags=re.MULTILINE)))
    assert set(listed) == {*Translation.__dataclass_fields__, *Generation.__dataclass_fields__}
