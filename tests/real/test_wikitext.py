"""The words of WikiText-2 are counted as everybody counts them."""

import os
from pathlib import Path

import pytest

from regard.data.formats import Text, Unit
from regard.data.reader import read
from regard.tokenization import algorithms
from regard.tokenization.tokenizer_trainer import train
from regard.training.run import word_perplexity

DATA = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(not DATA, reason="REGARD_DATA is not set")
def test_the_validation_part_has_217646_words():
    path = Path(DATA) / "wikitext-2" / "valid.txt"
    documents = list(read("generate", [path], Text(unit=Unit.FILE)))
    tokenizer = train(algorithms.ByteBPE(size=300), (one.text for one in documents))
    assert word_perplexity.count(documents, tokenizer) == 217_646 - len(documents)
