"""Real weights tell their known story, greedily, by a plain loop over `network(...)`."""

import os
from pathlib import Path

import pytest
import torch

import regard

DATA = os.environ.get("REGARD_DATA")
PROMPT = [1, 9038, 2501, 263, 931]
"""<s> Once upon a time"""
BEGINNING = [29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889, 2296, 18012, 304, 1708, 5377]
"""…, there was a little girl named Lily. She loved to play outside: known from the data's own page."""


def folder(name):
    if DATA is None:
        pytest.skip("REGARD_DATA is not set")
    path = Path(DATA) / "weights" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def tell(network, prompt, most, cached=True):
    told = list(prompt)
    cache = network.new_cache() if cached else None
    tokens = torch.tensor([told])
    with torch.no_grad():
        while len(told) < most:
            following = int(network(tokens, cache=cache).logits[0, -1].argmax())
            told.append(following)
            tokens = torch.tensor([[following]]) if cached else torch.tensor([told])
            if following == prompt[0]:
                break
    return told


def test_stories15m_tells_its_story():
    network = regard.load(folder("stories15M"), dtype=torch.float32).network
    told = tell(network, PROMPT, most=256)
    assert told[len(PROMPT) :][: len(BEGINNING)] == BEGINNING
    assert told[-1] == 1
    assert len(told) == 223


@pytest.mark.parametrize("name", ["stories15M", "stories260K"])
def test_same_story_without_a_cache_and_in_transformers(name):
    import transformers

    path = folder(name)
    network = regard.load(path, dtype=torch.float32).network
    model = transformers.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    prompt = PROMPT if name == "stories15M" else [1, 403, 407, 261, 378]
    told = tell(network, prompt, most=60)
    assert told == tell(network, prompt, most=60, cached=False)
    with torch.no_grad():
        theirs = model(torch.tensor([told])).logits[0]
        ours = network(torch.tensor([told])).logits[0]
    assert (theirs - ours).abs().max() < 1e-4 * theirs.abs().max()
    assert theirs[len(prompt) - 1 : -1].argmax(-1).tolist() == told[len(prompt) :]
