"""Real weights generate a known story through `model.generate` and the command."""

import json
import os
from pathlib import Path

import pytest
from unit.cli.runner import run

import regard

BEGINNING = (
    ", there was a little girl named Lily. She loved to play outside in the sunshine. One day, she saw a big, red ball "
    "in the sky. It was the sun! She thought it was so pretty.\nLily wanted to play with the ball, but it was"
)
"""From the page of the data, as is the length: 223 tokens with the five of the prompt."""


@pytest.fixture(scope="module")
def folder():
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA is not set")
    path = Path(os.environ["REGARD_DATA"]) / "weights" / "stories15M"
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def test_the_story_and_its_end(folder):
    result = json.loads(run("generate", folder, "Once upon a time", "--json").out)
    assert result["text"].startswith(BEGINNING)
    assert (result["stopped"], len(result["tokens"]) + 5) == ("end", 223)
    assert result["max_new_tokens"] == 256 - 5


def test_a_stream_tells_the_same(folder):
    model = regard.load(folder)
    *chunks, result = model.prepare("generate", max_new_tokens=40).stream("Once upon a time")
    assert "".join(chunks) == result.text
    assert BEGINNING.startswith(result.text)
    assert (result.stopped, result.max_new_tokens) == ("length", 40)
