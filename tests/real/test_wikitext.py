"""The word count of WikiText-2 is the published one."""

import os
from pathlib import Path

import pytest

from regard.data.formats import Text, Unit
from regard.data.reader import read
from regard.tokenization import algorithms
from regard.tokenization.tokenizer_trainer import train_tokenizer
from regard.training.run import word_perplexity

DATA = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(not DATA, reason="REGARD_DATA is not set")
def test_the_validation_part_has_217646_words():
    path = Path(DATA) / "wikitext-2" / "valid.txt"
    documents = list(read("generate", [path], Text(unit=Unit.FILE)))
    tokenizer = train_tokenizer(algorithms.ByteBPE(size=300), (document.text for document in documents))
    assert word_perplexity.count_predicted_words(documents, tokenizer) == 217_646 - len(documents)
