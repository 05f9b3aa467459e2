"""Published weights generate their known story, greedily, with a plain loop over `network(...)`."""

import os
from pathlib import Path

import pytest
import torch

import regard

DATA = os.environ.get("REGARD_DATA")
PROMPT = [1, 9038, 2501, 263, 931]
"""<s> Once upon a time"""
BEGINNING = [29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889, 2296, 18012, 304, 1708, 5377]
"""…, there was a little girl named Lily. She loved to play outside: published on the page of the weights."""


def folder(name):
    if DATA is None:
        pytest.skip("REGARD_DATA is not set")
    path = Path(DATA) / "weights" / name
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def generate(network, prompt, max_length, cached=True):
    tokens = list(prompt)
    cache = network.new_cache() if cached else None
    inputs = torch.tensor([tokens])
    with torch.no_grad():
        while len(tokens) < max_length:
            next_token = int(network(inputs, cache=cache).logits[0, -1].argmax())
            tokens.append(next_token)
            inputs = torch.tensor([[next_token]]) if cached else torch.tensor([tokens])
            if next_token == prompt[0]:
                break
    return tokens


def test_stories15m_tells_its_story():
    network = regard.load(folder("stories15M")).network.float()
    tokens = generate(network, PROMPT, max_length=256)
    assert tokens[len(PROMPT) :][: len(BEGINNING)] == BEGINNING
    assert tokens[-1] == 1
    assert len(tokens) == 223


@pytest.mark.parametrize("name", ["stories15M", "stories260K"])
def test_same_story_without_a_cache_and_in_transformers(name):
    import transformers

    path = folder(name)
    network = regard.load(path).network.float()
    model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    prompt = PROMPT if name == "stories15M" else [1, 403, 407, 261, 378]
    tokens = generate(network, prompt, max_length=60)
    assert tokens == generate(network, prompt, max_length=60, cached=False)
    with torch.no_grad():
        theirs = model(torch.tensor([tokens])).logits[0]
        ours = network(torch.tensor([tokens])).logits[0]
    assert (theirs - ours).abs().max() < 1e-4 * theirs.abs().max()
    assert theirs[len(prompt) - 1 : -1].argmax(-1).tolist() == tokens[len(prompt) :]
