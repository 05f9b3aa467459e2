"""Inputs that cannot be processed well: both commands report an error or a result, and never hang."""

import json

import pytest
from unit.cli.runner import run
from unit.tasks import models, vocabularies

import regard

MAKE = {"translate": models.translating, "generate": models.continuing}
LIMIT = 4


@pytest.fixture(params=MAKE)
def command(request):
    return request.param


@pytest.fixture
def folder(command, tmp_path):
    return MAKE[command](tmp_path / "model")


def change_generation_config(folder, **more):
    """Change keys of the generation config."""
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def run_json(*words):
    called = run(*words, "--json")
    assert called.code == 0
    return json.loads(called.out), called.err


def test_an_empty_text(command, folder):
    """An empty text translates to an empty text; an empty prompt has any continuation."""
    called = run(command, folder, "", "--max-new-tokens", LIMIT)
    assert called.code == 0
    result, _ = run_json(command, folder, "", "--max-new-tokens", LIMIT)
    assert called.out == result["text"] + "\n"
    assert (result["text"] == "") == (command == "translate")
    assert result["truncated"] == 0


def test_a_prompt_longer_than_the_network_is_cut_and_said(tmp_path):
    folder = models.continuing(tmp_path, "gpt2", vocabularies.gpt2)
    prompt = "dog " * 70
    result, notes = run_json("generate", folder, prompt, "--max-new-tokens", LIMIT)
    tokens = regard.load(folder).tokenizer.encode(prompt).ids
    assert result["truncated"] == len(tokens) - (48 - LIMIT)
    assert f"1 of 1 texts: longer than the network allows: {result['truncated']} input tokens truncated" in notes


@pytest.mark.parametrize("search", [[], ["--beam", 3], ["--stream"]], ids=str)
def test_a_text_that_cannot_be_continued(command, folder, search):
    """The generation config suppresses every token."""
    change_generation_config(folder, suppress_tokens=list(range(len(regard.load(folder).tokenizer))))
    target_prefix = ["--target-prefix", "the dog"] if command == "translate" else []
    called = run(command, folder, "a man", "--max-new-tokens", LIMIT, *target_prefix, *search)
    assert called.code == 0
    assert called.out == ("the dog\n" if target_prefix else "\n")
    assert "1 of 1 texts: stopped because the logits processors masked every token" in called.err


def test_a_beam_larger_than_the_vocabulary(command, folder):
    size = len(regard.load(folder).tokenizer)
    result, _ = run_json(command, folder, "a man", "--max-new-tokens", 2, "--beam", size + 9, "--n-best", 5)
    hypotheses = [result, *result["alternatives"]]
    assert len({tuple(hypothesis["tokens"]) for hypothesis in hypotheses}) == len(hypotheses) == 5
    scores = [hypothesis["score"] for hypothesis in hypotheses]
    assert scores == sorted(scores, reverse=True)


def test_a_minimum_beyond_the_limit_gives_way_to_it(command, folder):
    change_generation_config(folder, min_new_tokens=50)
    result, notes = run_json(command, folder, "a man", "--max-new-tokens", LIMIT)
    assert (result["stopped"], len(result["tokens"])) == ("length", LIMIT)
    assert f"unfinished after the maximum of {LIMIT} tokens" in notes


def test_a_stop_text_that_never_comes(tmp_path):
    """The EOS tokens are suppressed, so the text ends at the context length of the network."""
    folder = models.continuing(tmp_path)
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    change_generation_config(folder, suppress_tokens=ends)
    result, notes = run_json("generate", folder, "a man", "--stop", "this never comes")
    limit = 48 - len(regard.load(folder).tokenizer.encode("a man").ids)
    assert (result["stopped"], result["max_new_tokens"], len(result["tokens"])) == ("length", limit, limit)
    assert f"1 of 1 texts: unfinished after the maximum of {limit} tokens" in notes
