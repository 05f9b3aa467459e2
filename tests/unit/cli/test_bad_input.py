"""What cannot be written well: a clear error or a stated result from both commands, never a hang."""

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


def habits(folder, **more):
    """Change what the model's authors say of writing."""
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def told(*words):
    called = run(*words, "--json")
    assert called.code == 0
    return json.loads(called.out), called.err


def test_an_empty_text(command, folder):
    """Nothing is translated as nothing; a text that begins with nothing can be anything."""
    called = run(command, folder, "", "--limit", LIMIT)
    assert called.code == 0
    whole, _ = told(command, folder, "", "--limit", LIMIT)
    assert called.out == whole["text"] + "\n"
    assert (whole["text"] == "") == (command == "translate")
    assert whole["truncated"] == 0


def test_a_prompt_longer_than_the_network_is_cut_and_said(tmp_path):
    folder = models.continuing(tmp_path, "gpt2", vocabularies.gpt2)
    prompt = "dog " * 70
    whole, said = told("generate", folder, prompt, "--limit", LIMIT)
    tokens = regard.load(folder).tokenizer.encode(prompt).ids
    assert whole["truncated"] == len(tokens) - (48 - LIMIT)
    assert f"1 of 1 texts: too long for the network: cut by {whole['truncated']} tokens" in said


@pytest.mark.parametrize("search", [[], ["--beam", 3], ["--stream"]], ids=str)
def test_a_text_that_cannot_be_continued(command, folder, search):
    """The authors' rules forbid every token."""
    habits(folder, suppress_tokens=list(range(len(regard.load(folder).tokenizer))))
    begun = ["--begin", "the dog"] if command == "translate" else []
    called = run(command, folder, "a man", "--limit", LIMIT, *begun, *search)
    assert called.code == 0
    assert called.out == ("the dog\n" if begun else "\n")
    assert "1 of 1 texts: ended because the rules left no token to write" in called.err


def test_a_beam_larger_than_the_vocabulary(command, folder):
    size = len(regard.load(folder).tokenizer)
    whole, _ = told(command, folder, "a man", "--limit", 2, "--beam", size + 9, "--n-best", 5)
    texts = [whole, *whole["alternatives"]]
    assert len({tuple(one["tokens"]) for one in texts}) == len(texts) == 5
    assert [one["score"] for one in texts] == sorted((one["score"] for one in texts), reverse=True)


def test_a_minimum_beyond_the_limit_gives_way_to_it(command, folder):
    habits(folder, min_new_tokens=50)
    whole, said = told(command, folder, "a man", "--limit", LIMIT)
    assert (whole["stopped"], len(whole["tokens"])) == ("length", LIMIT)
    assert f"still unfinished at the limit of {LIMIT} tokens" in said


def test_a_stop_text_that_never_comes(tmp_path):
    """The network knows no end, so the text ends where it was made to end."""
    folder = models.continuing(tmp_path)
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    habits(folder, suppress_tokens=ends)
    whole, said = told("generate", folder, "a man", "--stop", "this never comes")
    room = 48 - len(regard.load(folder).tokenizer.encode("a man").ids)
    assert (whole["stopped"], whole["limit"], len(whole["tokens"])) == ("length", room, room)
    assert f"1 of 1 texts: still unfinished at the limit of {room} tokens" in said
