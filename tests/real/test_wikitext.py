"""The words of WikiText-2 are counted as everybody counts them."""

import os
from pathlib import Path

import pytest

from regard.data.formats import Text, Unit
from regard.data.reading import read
from regard.text import kinds
from regard.text.train import train
from regard.training import words

DATA = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(not DATA, reason="REGARD_DATA is not set")
def test_the_validation_part_has_217646_words():
    path = Path(DATA) / "wikitext-2" / "valid.txt"
    documents = list(read("generate", [path], Text(unit=Unit.FILE)))
    tokenizer = train(kinds.ByteBPE(size=300), (one.text for one in documents))
    assert words.count(documents, tokenizer) == 217_646 - len(documents)
