"""Cache keys and fingerprints keep the text that version 0.1 wrote.

A corpus folder is named after its cache key, and every training state stores the fingerprint of its batches. Another
text would encode each corpus again and restart the pass over the data of each resumed run. All literals were computed
by version 0.1, with the same files and options.
"""

import json

import pytest
from unit.data.file_fixtures import write
from unit.data.tiny_tokenizers import LengthsCorpus, characters, words

from regard.data import encoding
from regard.data.batches import Batches, LengthBatching, OversizePolicy, PackedBatching
from regard.data.encoders.documents import DocumentEncoder
from regard.data.encoders.labels import LabeledTextEncoder
from regard.data.encoders.pairs import PairEncoder
from regard.data.encoders.questions import QuestionEncoder
from regard.data.encoders.tags import TaggedSentenceEncoder
from regard.data.example import Document, LabeledText, Pair, TaggedSentence
from regard.data.fields import LabelType
from regard.data.formats import Conll, JsonLines, Parallel, Quoting, Scheme, Squad, Table, Text, Unit
from regard.data.length_policy import SlidingWindow, StrictLength, Truncation
from regard.data.source import DataSource
from regard.tokenization.tokenizer import Tokenizer

WORDS, LETTERS = words("a", "b"), characters()
QUESTION = {"id": "1", "question": "who", "answers": [{"text": "ann", "answer_start": 0}]}
FILES = {
    "x.en": "a b\n",
    "x.de": "b a\n",
    "x.txt": "a b\n",
    "x.tsv": "text\tlabel\nabc\tx\n",
    "s.tsv": "abc\tabd\t2.5\n",
    "x.conll": "ab B-x\nc O\n",
    "x.json": json.dumps({"data": [{"paragraphs": [{"context": "ann ran", "qas": [QUESTION]}]}]}),
    "x.jsonl": '{"de": "a", "en": "b"}\n',
}
SCORES = Table(columns={"text": 0, "pair": 1, "label": 2})
CASES = {
    "pairs": (
        lambda file: DataSource(Pair, [file("x.en"), file("x.de")]),
        PairEncoder(tokenizer=WORDS),
        "2b3b79df5a1fc7b6969669de2725e3dc",
    ),
    "pairs with length policies": (
        lambda file: DataSource("translate", [file("x.en"), file("x.de")], Parallel()),
        PairEncoder(tokenizer=WORDS, source_length_policy=Truncation(8), target_length_policy=StrictLength(9)),
        "3105b926d712ca23ff48712a7b48c60f",
    ),
    "JSON Lines": (
        lambda file: DataSource(Pair, [file("x.jsonl")], JsonLines(keys={"source": "de", "target": "en"})),
        PairEncoder(tokenizer=WORDS),
        "bc6147d5473650f7bc8a0260068dc997",
    ),
    "records": (
        lambda file: DataSource(Pair, [{"source": "a", "target": "b"}]),
        PairEncoder(tokenizer=WORDS),
        "1cb6e0b91535f52455473cc7e808384d",
    ),
    "documents": (
        lambda file: DataSource(Document, [file("x.txt")], Text(unit=Unit.FILE)),
        DocumentEncoder(tokenizer=WORDS),
        "3e9619423e762135a07098683c404025",
    ),
    "documents in windows": (
        lambda file: DataSource("generate", [file("x.txt")]),
        DocumentEncoder(tokenizer=WORDS, length_policy=SlidingWindow(8, 4)),
        "a6cd3b162d016d196d0e2c65556edab9",
    ),
    "classes": (
        lambda file: DataSource(
            LabeledText, [file("x.tsv")], Table(columns={"text": "text", "label": 1}, quoting=Quoting.NONE)
        ),
        LabeledTextEncoder(tokenizer=LETTERS, labels=("x", "y"), length_policy=Truncation(16)),
        "36d237e506c2e02b8213d5363b8376ea",
    ),
    "scores": (
        lambda file: DataSource(LabeledText, [file("s.tsv")], SCORES, label_type=LabelType.SCORE),
        LabeledTextEncoder(tokenizer=LETTERS, labels=None, length_policy=StrictLength(16)),
        "e46e30d367ee24f05c9a884a9deb70fa",
    ),
    "scores by the task's name": (
        lambda file: DataSource("embed", [file("s.tsv")], SCORES),
        LabeledTextEncoder(tokenizer=LETTERS, labels=None),
        "8e46d48b4e7e93cf8093b45b3a75c1dc",
    ),
    "tags": (
        lambda file: DataSource(TaggedSentence, [file("x.conll")], Conll(scheme=Scheme.BIO)),
        TaggedSentenceEncoder(tokenizer=LETTERS, tags=("O", "B-x", "I-x"), length_policy=SlidingWindow(16, 8)),
        "ea9975c1615eed997ae0cc12e4248ee3",
    ),
    "questions": (
        lambda file: DataSource("answer", [file("x.json")], Squad()),
        QuestionEncoder(tokenizer=LETTERS, length_policy=SlidingWindow(16, 8)),
        "847b57ba366cd71f387656d43f2dc8a5",
    ),
}


@pytest.fixture(autouse=True)
def fixed_tokenizer_fingerprint(monkeypatch):
    """The tokenizer's own fingerprint depends on the version of the `tokenizers` library."""
    monkeypatch.setattr(Tokenizer, "fingerprint", lambda self: "tokenizer")


@pytest.mark.parametrize("name", CASES)
def test_a_corpus_keeps_its_cache_key(tmp_path, name):
    make_source, encoder, key = CASES[name]
    source = make_source(lambda file: write(tmp_path, file, FILES[file]))
    assert encoding._cache_key(source, encoder, source.file_fingerprints({})) == key
    assert encoding.encode(source, encoder, tmp_path / "cache").folder.name == key


BATCHINGS = [
    (LengthBatching(), "ByLength(tokens=4096, too_long=<TooLong.REFUSE: 'refuse'>)"),
    (LengthBatching(batch_tokens=96), "ByLength(tokens=96, too_long=<TooLong.REFUSE: 'refuse'>)"),
    (LengthBatching(96, OversizePolicy.OWN_BATCH), "ByLength(tokens=96, too_long=<TooLong.ALONE: 'alone'>)"),
    (LengthBatching(96, OversizePolicy.SKIP), "ByLength(tokens=96, too_long=<TooLong.SKIP: 'skip'>)"),
    (PackedBatching(), "Packed(tokens=4096, length=512)"),
    (PackedBatching(batch_tokens=96, max_length=32), "Packed(tokens=96, length=32)"),
]


@pytest.mark.parametrize(("batching", "expected"), BATCHINGS)
def test_batches_keep_their_fingerprint(tmp_path, batching, expected):
    assert batching.fingerprint() == expected
    corpus = LengthsCorpus(tokens=[5, 6])
    corpus.folder = tmp_path / "3f9a"
    assert Batches(corpus, batching, seed=3).fingerprint == f"3f9a, {expected}, seed 3"
