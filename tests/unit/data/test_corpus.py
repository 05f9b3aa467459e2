"""The encoded corpus: the ids of the tokenizer, reused while nothing changes, never half written."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from unit.data.file_fixtures import property_settings, write
from unit.data.tiny_tokenizers import characters, words

from regard.data import corpus_cache, encoding
from regard.data.corpus import Corpus, CorpusError
from regard.data.encoders.documents import DocumentEncoder
from regard.data.encoders.pairs import PairEncoder
from regard.data.encoding import encode
from regard.data.example import Document, Pair
from regard.data.formats import Text, Unit
from regard.data.length_policy import SlidingWindow, StrictLength, Truncation
from regard.data.readers import plain
from regard.data.source import DataSource
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer

WORDS = words("a", "b", "c", "d")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "ENCODE_BATCH_EXAMPLES", 7)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # killed processes are tested in test_corpus_processes.py


class Counted:
    """An encoder that counts the calls of `encode`."""

    def __init__(self, encoder):
        self.encoder, self.calls = encoder, 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def encode(self, examples):
        self.calls += 1
        return self.encoder.encode(examples)


def parallel(folder, count=40):
    source = write(folder, "x.en", "".join(f"a {'b ' * (i % 5)}c\n" for i in range(count)))
    target = write(folder, "x.de", "".join(f"{'d ' * (i % 4)}a\n" for i in range(count)))
    return DataSource(Pair, [source, target])


def rows(corpus):
    return [{name: row.tolist() for name, row in corpus[i].items()} for i in range(len(corpus))]


@given(lines=st.lists(st.tuples(st.text("abcd ", max_size=9), st.text("abcd ", max_size=9)), min_size=1, max_size=30))
@property_settings
def test_rows_are_what_the_tokenizer_says(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("corpus")
    source = write(folder, "x.en", "".join(f"{line}\n" for line, _ in lines))
    target = write(folder, "x.de", "".join(f"{line}\n" for _, line in lines))
    corpus = encode(DataSource(Pair, [source, target]), PairEncoder(tokenizer=WORDS), folder / "cache")
    expected = [{"source": WORDS.encode(a).ids, "target": WORDS.encode(b).ids} for a, b in lines]
    assert rows(corpus) == expected
    assert corpus.lengths["target"].tolist() == [len(row["target"]) for row in expected]
    assert corpus.num_examples == len(corpus) == len(lines)


def test_numbers_as_small_as_the_vocabulary_allows(tmp_path):
    small = encode(parallel(tmp_path), PairEncoder(tokenizer=WORDS), tmp_path / "small")
    assert small.columns["source"].values.dtype == np.uint16
    large_vocabulary = words(*(f"w{i}" for i in range(2**16)))
    source = DataSource(Document, [write(tmp_path, "a.txt", f"w{2**16 - 1} w0\n")])
    large = encode(source, DocumentEncoder(tokenizer=large_vocabulary), tmp_path / "large")
    assert rows(large) == [{"tokens": [2**16 + 2, 3, 2]}]


def test_the_end_is_always_there_to_be_learnt(tmp_path):
    silent = words("a", "b", "c", "d", end=None)
    assert silent.encode("a").ids == [3]
    corpus = encode(parallel(tmp_path), PairEncoder(tokenizer=silent), tmp_path / "pairs")
    assert all(row["target"][-1] == 2 for row in rows(corpus))
    source = DataSource(Document, [write(tmp_path, "a.txt", "a b\nc\n")])
    assert rows(encode(source, DocumentEncoder(tokenizer=silent), tmp_path / "text")) == [
        {"tokens": [3, 4, 2]},
        {"tokens": [5, 2]},
    ]


def test_it_is_made_once(tmp_path):
    source, encoder = parallel(tmp_path), Counted(PairEncoder(tokenizer=WORDS))
    first = rows(encode(source, encoder, tmp_path / "cache"))
    calls = encoder.calls
    assert calls == 6
    assert rows(encode(source, encoder, tmp_path / "cache")) == first
    assert encoder.calls == calls


def edit_keeping_date(path):
    """The hardest change to detect: the same size, the same date."""
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"c", b"d", 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES = {
    "a longer file": lambda source, encoder: (source.files[0].write_text("a\n" * 40), None)[1],
    "an edit that keeps size and date": lambda source, encoder: edit_keeping_date(source.files[0]),
    "the other direction": lambda source, encoder: (DataSource(Pair, source.files[::-1]), encoder),
    "the same files twice": lambda source, encoder: (DataSource(Pair, source.files * 2), encoder),
    "another tokenizer": lambda source, encoder: (source, PairEncoder(tokenizer=words("a", "b", "d", "c"))),
    "another length": lambda source, encoder: (source, replace(encoder, source_length_policy=Truncation(3))),
    "another rule": lambda source, encoder: (source, replace(encoder, source_length_policy=StrictLength(300))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_made_again_when_anything_is_another(tmp_path, change):
    source, encoder = parallel(tmp_path), PairEncoder(tokenizer=WORDS)
    encode(source, encoder, tmp_path / "cache")
    source, encoder = CHANGES[change](source, encoder) or (source, encoder)
    counted = Counted(encoder)
    found = rows(encode(source, counted, tmp_path / "cache"))
    assert counted.calls > 0
    assert found == rows(encode(source, encoder, tmp_path / "fresh"))
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1  # the old one is gone


def test_a_new_date_or_place_alone_is_no_change(tmp_path):
    source, encoder = parallel(tmp_path), Counted(PairEncoder(tokenizer=WORDS))
    first = encode(source, encoder, tmp_path / "cache")
    calls = encoder.calls
    os.utime(source.files[0])
    touched = encode(source, encoder, tmp_path / "cache")
    assert touched.file_fingerprints != Corpus(first.folder).file_fingerprints  # the new date is stored
    moved = [shutil.move(path, tmp_path / f"moved.{path.name}") for path in source.files]
    encode(DataSource(Pair, moved), encoder, tmp_path / "cache")
    assert encoder.calls == calls


def test_files_in_a_folder_are_part_of_what_it_was_made_from(tmp_path):
    write(tmp_path, "texts/a.txt", "a\n")
    source, encoder = DataSource(Document, [tmp_path / "texts"]), DocumentEncoder(tokenizer=WORDS)
    assert len(encode(source, encoder, tmp_path / "cache")) == 1
    write(tmp_path, "texts/b.txt", "b\n")
    assert len(encode(source, encoder, tmp_path / "cache")) == 2


def test_records_are_compared_too(tmp_path):
    table = [{"source": "a", "target": "b"}]
    encoder = Counted(PairEncoder(tokenizer=WORDS))
    for count, now in [(1, table), (1, list(table)), (2, [{"source": "a", "target": "c"}])]:
        encode(DataSource(Pair, now), encoder, tmp_path / "cache")
        assert encoder.calls == count


def test_a_damaged_corpus_is_made_again(tmp_path):
    source, encoder = parallel(tmp_path), PairEncoder(tokenizer=WORDS)
    corpus = encode(source, encoder, tmp_path / "cache")
    expected = rows(corpus)
    for name in ("source.values", "target.offsets", "corpus.json"):
        path = corpus.folder / name
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(CorpusError):
            Corpus(corpus.folder)
        assert rows(encode(source, encoder, tmp_path / "cache")) == expected


@pytest.mark.parametrize("name", ["source.values", "target.values", "target.offsets", "corpus.json"])
def test_one_flipped_bit_in_a_corpus_is_noticed(tmp_path, capsys, name):
    source, encoder = parallel(tmp_path), PairEncoder(tokenizer=WORDS)
    corpus = encode(source, encoder, tmp_path / "cache")
    expected, path = rows(corpus), corpus.folder / name
    content = bytearray(path.read_bytes())
    content[content.index(b'"examples": ') + 12 if name == "corpus.json" else 8] ^= 1
    path.write_bytes(content)
    assert rows(encode(source, encoder, tmp_path / "cache")) == expected
    if name.endswith("values"):  # the others are found when the corpus is opened
        assert f"{name} is damaged: its checksum is wrong; the data is encoded again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value"), [("rows", "many"), ("cuts", [1]), ("columns", 3), ("files", None), ("columns", {"source": "x"})]
)
def test_values_of_the_wrong_type_are_told(tmp_path, key, value):
    """A corpus of an earlier version, which has no checksums."""
    corpus = encode(parallel(tmp_path), PairEncoder(tokenizer=WORDS), tmp_path / "cache")
    path = corpus.folder / "corpus.json"
    stored = json.loads(path.read_text())
    old = {name: stored[name] for name in stored if "crc32" not in name}
    path.write_text(json.dumps({**old, key: value}))
    with pytest.raises(CorpusError, match=r"(?s)corpus\.json is damaged .*: encode the corpus again"):
        Corpus(corpus.folder)
    path.write_text(json.dumps(old))
    Corpus(corpus.folder)


def test_what_fails_leaves_the_old_corpus(tmp_path):
    source, encoder = parallel(tmp_path), PairEncoder(tokenizer=WORDS)
    expected = rows(encode(source, encoder, tmp_path / "cache"))
    good = source.files[1].read_bytes()
    source.files[1].write_bytes(good[:-3] + b"\xff\n")
    with pytest.raises(DataError, match=r"line 40: .*not valid UTF-8"):
        encode(source, encoder, tmp_path / "cache")
    assert not [*(tmp_path / "cache").glob(".*.part")]
    source.files[1].write_bytes(good)
    counted = Counted(encoder)
    assert rows(encode(source, counted, tmp_path / "cache")) == expected
    assert counted.calls == 0


def test_a_file_that_changes_while_it_is_read(tmp_path):
    source = parallel(tmp_path)

    class Changing(Counted):
        def encode(self, examples):
            os.utime(source.files[0], ns=(1, 1))
            return super().encode(examples)

    with pytest.raises(DataError, match=r"x\.en: the file changed during encoding"):
        encode(source, Changing(PairEncoder(tokenizer=WORDS)), tmp_path / "cache")
    assert corpus_cache.load_any(tmp_path / "cache") is None


def test_wrong_calls(tmp_path):
    with pytest.raises(ValueError, match="DocumentEncoder expects Document examples, got Pair"):
        encode(parallel(tmp_path), DocumentEncoder(tokenizer=WORDS), tmp_path / "cache")
    with pytest.raises(DataError, match=r"empty\.txt: the file contains no examples"):
        encode(
            DataSource(Document, [write(tmp_path, "empty.txt", "\n \n")]),
            DocumentEncoder(tokenizer=WORDS),
            tmp_path / "cache",
        )
    with pytest.raises(DataError, match="nothing: file not found"):
        encode(DataSource(Document, [tmp_path / "nothing"]), DocumentEncoder(tokenizer=WORDS), tmp_path / "cache")
    with pytest.raises(ValueError, match="pairs cannot be split into windows"):
        PairEncoder(tokenizer=WORDS, source_length_policy=SlidingWindow(5, 3))
    silent = words("a", end=None)
    source = DataSource(Pair, [{"source": "a", "target": "a"}, {"source": " ", "target": "a"}])
    with pytest.raises(DataError, match="rows, line 2: the source has no tokens"):
        encode(source, PairEncoder(tokenizer=silent), tmp_path / "cache")


# Long input


@given(count=st.integers(0, 40), length=st.integers(3, 20), stride=st.integers(1, 20))
@property_settings
def test_windows_cover_everything(tmp_path_factory, count, length, stride):
    """Each window has two special tokens: [CLS] and [SEP]."""
    folder = tmp_path_factory.mktemp("windows")
    stride = min(stride, length)
    tokenizer = characters()
    text = ("abcdefghij" * 4)[:count] or "a"
    encoder = DocumentEncoder(tokenizer=tokenizer, length_policy=SlidingWindow(length, stride))
    corpus = encode(DataSource(Document, [{"text": text}]), encoder, folder)
    whole = tokenizer.encode(text).ids
    found = [row["tokens"] for row in rows(corpus)]
    assert all(row[0] == 2 and row[-1] == 3 and len(row) <= length for row in found)
    step = min(stride, length - 2)
    rebuilt = found[0][1:-1]
    for number, row in enumerate(found[1:], 1):
        assert row[1 : 1 + len(rebuilt) - number * step] == rebuilt[number * step :]
        rebuilt = rebuilt[: number * step] + row[1:-1]
    assert rebuilt == whole[1:-1]
    long = len(whole) > length
    assert (corpus.truncation.examples, corpus.truncation.windows) == ((1, len(found)) if long else (0, 0))
    assert long == (len(found) > 1)


def test_cuts_are_counted_and_reported(tmp_path):
    source = DataSource(Pair, [{"source": "a a a a a", "target": "b"}, {"source": "a", "target": "b b b b"}])
    corpus = encode(
        source,
        PairEncoder(tokenizer=WORDS, source_length_policy=Truncation(3), target_length_policy=Truncation(4)),
        tmp_path,
    )
    assert rows(corpus) == [{"source": [3, 3, 2], "target": [4, 2]}, {"source": [3, 2], "target": [4, 4, 4, 2]}]
    assert (corpus.truncation.examples, corpus.truncation.tokens) == (2, 4)
    assert "2 examples exceeded max_length: 4 tokens truncated" in corpus.summary()
    with pytest.raises(DataError, match=r"rows, line 1: 6 tokens exceed max_length=3.*Truncation\(3\)"):
        encode(source, PairEncoder(tokenizer=WORDS, source_length_policy=StrictLength(3)), tmp_path)


@pytest.mark.parametrize("length", [5, 6, 7])
def test_special_tokens_on_both_sides_survive_a_cut(tmp_path, length):
    """Like mBART's template: text, EOS, language code. Nothing is appended to them, and none of them is truncated."""
    template = TemplateProcessing(single="<s> $A </s> <pad>", special_tokens=[("<s>", 7), ("</s>", 2), ("<pad>", 0)])
    core = tokenizers.Tokenizer.from_str(words("a", "b", "c", "d", "<s>")._backend.to_str())
    core.post_processor = template
    tokenizer = Tokenizer(core, SpecialTokens(unk="<unk>", eos="</s>"))
    source = DataSource(Pair, [{"source": "a b c a b", "target": "c b a"}])
    corpus = encode(
        source,
        PairEncoder(
            tokenizer=tokenizer, source_length_policy=Truncation(length), target_length_policy=Truncation(length)
        ),
        tmp_path,
    )
    text = [3, 4, 5, 3, 4][: length - 3]
    assert rows(corpus) == [{"source": [7, *text, 2, 0], "target": [7, *[5, 4, 3][: length - 3], 2, 0]}]
    assert corpus.truncation.tokens == 8 - length + max(0, 6 - length)


def test_a_tokenizer_that_knows_no_letter_of_ours(tmp_path):
    tokenizer = words("猫", "犬")
    encoder = DocumentEncoder(tokenizer=tokenizer)
    assert rows(encode(DataSource(Document, [{"text": "猫 犬"}]), encoder, tmp_path)) == [{"tokens": [3, 4, 2]}]


def test_a_document_in_pieces_begins_once_and_ends_once(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "MAX_EXAMPLE_CHARACTERS", 4)
    source = DataSource(Document, [write(tmp_path, "a.txt", "a b\nc d\na b\nc")], Text(unit=Unit.FILE))
    corpus = encode(source, DocumentEncoder(tokenizer=WORDS), tmp_path / "cache")
    assert [row["tokens"] for row in rows(corpus)] == [[3, 4], [5, 6], [3, 4], [5, 2]]


@pytest.mark.parametrize(("length", "stride"), [(0, 1), (4, 0), (4, 5)])
def test_windows_that_make_no_sense(length, stride):
    with pytest.raises(ValueError, match=r"max_length must be at least 1|stride must be between 1 and max_length=4"):
        SlidingWindow(length, stride)


def test_a_window_that_has_no_room(tmp_path):
    with pytest.raises(DataError, match="take 2 tokens, leaving none for the text"):
        encode(
            DataSource(Document, [{"text": "abc"}]),
            DocumentEncoder(tokenizer=characters(), length_policy=SlidingWindow(2, 1)),
            tmp_path,
        )
