"""summarize: translations with the right prefix and length; several references; `regard run`."""

import json

import pytest
from unit.cli.runner import run
from unit.tasks import models

from regard.data.example import Pair
from regard.data.reader import read
from regard.tasks.summarize import SUMMARIZE, SummarizeOptions, Summary
from regard.tasks.summarizer import tokens_per_word

TEXT = "the small dog runs along the beach. a man sees the horse."
PREFIXES = {"summarization": {"prefix": "summarize: "}, "translation_en_to_de": {"prefix": "translate: "}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models.translating(tmp_path_factory.mktemp("t5"), config={"task_specific_params": PREFIXES})


def test_a_summary_is_a_translation_with_the_prefix_of_the_model(folder):
    model = models.opened(folder)
    result = model.summarize(TEXT)
    assert type(result) is Summary
    assert result.text == model.translate(TEXT, prefix="summarize: ").text
    assert model.summarize(TEXT, prefix="").text == model.translate(TEXT, prefix="").text
    assert [each.text for each in model.summarize([TEXT, ""], beam=2)] == [
        each.text for each in model.translate([TEXT, ""], prefix="summarize: ", beam=2)
    ]


def test_the_prefix_that_a_model_was_trained_with_comes_first(folder, tmp_path):
    models.translating(tmp_path, config={"task_specific_params": PREFIXES})
    (tmp_path / "regard.json").write_text(json.dumps({"prompts": {"summarize": "tl;dr ", "translate": "en: "}}))
    model = models.opened(tmp_path)
    assert model.summarize(TEXT).text == model.translate(TEXT, prefix="tl;dr ").text
    assert model.translate(TEXT).text == model.translate(TEXT, prefix="en: ").text


@pytest.mark.parametrize("length", [3, 12])
def test_a_length_in_words(folder, length):
    model = models.opened(folder)
    result = model.summarize(TEXT, length=length)
    tokens = length * tokens_per_word(model.tokenizer.target)
    assert round(0.75 * tokens) <= len(result.tokens) <= round(1.25 * tokens)
    assert result.max_new_tokens == round(1.25 * tokens)
    with pytest.raises(ValueError, match="cannot be combined"):
        SummarizeOptions(length=3, max_new_tokens=4)


def test_a_long_text_is_summarized_in_parts(tmp_path):
    model = models.opened(models.with_positions(tmp_path))
    result = model.summarize(TEXT * 4, max_new_tokens=5)
    assert result.chunks > 1
    pieces = list(model.prepare("summarize", max_new_tokens=5).stream(TEXT * 4))
    assert isinstance(pieces[-1], Summary)
    assert pieces[-1].text == result.text == "".join(piece for piece in pieces[:-1])


def test_the_best_of_several_references_counts(tmp_path):
    rows = [{"source": ["a b", "c"], "target": ["x y", "the dog runs"]}, {"source": "a", "target": "b"}]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:1]))
    from regard.data.formats import JsonLines

    keys = {"target": "target.0", "references": "target"}
    (pair,) = read("summarize", [path], JsonLines(keys=keys, join=" "))
    assert pair == Pair(source="a b c", target="x y", references=("x y", "the dog runs"), file=path, line=1)
    metrics = SUMMARIZE.metrics
    assert metrics.compute([metrics.reference_of(pair)], ["the dog runs"])["rouge2"] == 100


def test_run_does_what_the_model_was_made_for(folder, tmp_path):
    models.translating(tmp_path / "made", config={"task_specific_params": PREFIXES})
    (tmp_path / "made" / "regard.json").write_text('{"task": "summarize"}')
    called = run("run", tmp_path / "made", TEXT)
    assert called.code == 0
    assert called.out == run("summarize", tmp_path / "made", TEXT).out
    assert "made for summarize" in called.err
    other = run("run", models.continuing(tmp_path / "llama"), "the dog", "--json")
    assert "made for generate" in other.err
    assert json.loads(other.out) == json.loads(run("generate", tmp_path / "llama", "the dog", "--json").out)


def test_another_task_is_an_error_that_says_what_to_do(tmp_path):
    folder = models.translating(tmp_path)
    (folder / "regard.json").write_text('{"task": "summarize"}')
    called = run("tag", folder, TEXT)
    assert called.code == 2
    message = " ".join(called.err.replace("│", " ").split())
    assert "It was made for summarize: use `summarize`" in message
