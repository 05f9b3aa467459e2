"""Training: deterministic across processes, bounded memory, uniform sampling with a note."""

import gzip
import hashlib
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers
from unit.tokenization.vocabularies import corpus

from regard.tokenization.algorithms import ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece
from regard.tokenization.line_sample import LINE_OVERHEAD_BYTES, sample_lines
from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.tokenizer_trainer import train_tokenizer

KINDS = [WordPiece(size=500), ByteBPE(size=500), Unigram(size=400), WordLevel(size=300), CharacterLevel(size=200)]
ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)

PROGRAM = """
import hashlib, sys
from pathlib import Path
from regard.tokenization.algorithms import *
from regard.tokenization.tokenizer_trainer import train_tokenizer
algorithms = WordPiece(size=500), ByteBPE(size=500), Unigram(size=400), WordLevel(size=300), CharacterLevel(size=200)
for algorithm in algorithms:
    files = train_tokenizer(algorithm, [Path(sys.argv[1])], seed=5, limit_bytes=150_000).files()
    print(type(algorithm).__name__, hashlib.sha256(b"".join(files.values())).hexdigest())
"""


def digest(tokenizer):
    return hashlib.sha256(b"".join(tokenizer.files().values())).hexdigest()


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "train.txt"
    path.write_text("\n".join(corpus(1500)) + "\n", "utf-8")
    return path


def test_two_processes_give_the_same_files_byte_for_byte(text_file):
    """The file is larger than the limit, so that a sample is drawn too."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-c", PROGRAM, str(text_file)]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0].split()[1::2])) == 5


@ALL
def test_the_order_of_lines_does_not_matter_without_a_sample(kind):
    lines = corpus(400)
    assert digest(train_tokenizer(kind, lines)) == digest(train_tokenizer(kind, lines[::-1]))


@ALL
def test_special_tokens_come_first_and_the_size_is_kept(kind):
    tokenizer = train_tokenizer(kind, corpus(500), extra_special_tokens=["<new>", ">>de<<"])
    assert len(tokenizer) <= kind.size
    if not isinstance(kind, WordLevel | CharacterLevel):
        assert len(tokenizer) == kind.size
    first = [tokenizer.id_to_token(number) for number in range(6)]
    assert {"<new>", ">>de<<", tokenizer.special_tokens.pad} <= set(first) | {tokenizer.id_to_token(6)}
    assert tokenizer.special_ids.pad == 0
    row = tokenizer.encode("a <new> man", parse_special_tokens=True, add_special_tokens=False)
    assert tokenizer.token_to_id("<new>") in row.ids


@ALL
def test_names_of_special_tokens_can_be_chosen(kind):
    names = SpecialTokens(pad="[P]", unk="[U]", eos="[E]", bos="[B]")
    tokenizer = train_tokenizer(kind, corpus(300), special_tokens=names)
    assert tokenizer.encode("a man").ids[-1] == tokenizer.special_ids.eos == tokenizer.token_to_id("[E]")
    if not isinstance(kind, ByteBPE):
        assert tokenizer.special_ids.unk in tokenizer.encode("\U0001f9ff").ids


@pytest.mark.parametrize(("ending", "opener"), [(".gz", gzip.open), (".xz", lzma.open), ("", open)])
def test_files_may_be_compressed(ending, opener, text_file, tmp_path):
    path = tmp_path / f"train.txt{ending}"
    with opener(path, "wb") as stream:
        stream.write(text_file.read_bytes())
    assert digest(train_tokenizer(KINDS[1], [path])) == digest(
        train_tokenizer(KINDS[1], text_file.read_text("utf-8").splitlines())
    )


def test_one_vocabulary_for_two_sides(tmp_path):
    (tmp_path / "a").write_text("aaa\n" * 9)
    (tmp_path / "b").write_text("bbb\n" * 9)
    shared = train_tokenizer(WordLevel(size=10), [tmp_path / "a", tmp_path / "b"])
    one = train_tokenizer(WordLevel(size=10), [tmp_path / "a"])
    assert {"aaa", "bbb"} <= set(shared.get_vocab())
    assert "bbb" not in one.get_vocab()


def test_words_and_characters_are_the_most_frequent_ones():
    lines = corpus(500)
    words = Counter(word for line in lines for word in line.split())
    ranked = sorted(words, key=lambda word: (-words[word], word))[:96]
    assert set(train_tokenizer(WordLevel(size=100), lines).get_vocab()) == {"<pad>", "<unk>", "<s>", "</s>", *ranked}
    frequent = {word for word, count in words.items() if count >= 3}
    assert set(train_tokenizer(WordLevel(size=10**6, min_frequency=3), lines).get_vocab()) >= frequent
    characters = Counter("\n".join(lines))
    ranked = sorted(characters, key=lambda character: (-characters[character], character))[:26]
    vocab = train_tokenizer(CharacterLevel(size=30), lines).get_vocab()
    assert set(vocab) == {"<pad>", "<unk>", "<s>", "</s>", *ranked}


def test_unigram_is_no_worse_than_the_librarys_trainer():
    """The library's trainer is not deterministic. Ours must split new texts into at most 2% more pieces."""
    size, lines, new = 600, corpus(800), corpus(300, seed=8)
    ours = train_tokenizer(Unigram(size=size), lines)
    backend = Backend(models.Unigram())
    backend.normalizer, backend.pre_tokenizer = ours._backend.normalizer, pre_tokenizers.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(lines, trainer)
    theirs = sum(len(row.ids) for row in backend.encode_batch(new))
    assert sum(map(len, ours.encode_batch_ids(new, add_special_tokens=False))) <= 1.02 * theirs


def test_a_sample_is_fair_bounded_and_fixed():
    texts = [f"text number {number:06d}" for number in range(50_000)]
    limit = 400_000
    sample = sample_lines(iter(texts), limit, seed=1)
    assert limit / 2.2 < sum(len(text) + LINE_OVERHEAD_BYTES for text in sample.texts) <= limit
    assert (sample.total_lines, sample.total_bytes) == (50_000, sum(map(len, texts)))
    assert sample.texts == sorted(set(sample.texts))  # in order, without duplicates
    halves = Counter(int(text[-6:]) < 25_000 for text in sample.texts)
    assert abs(halves[True] - halves[False]) < 5 * len(sample.texts) ** 0.5
    assert sample_lines(iter(texts), limit, seed=1) == sample
    assert sample_lines(iter(texts), limit, seed=2) != sample
    assert sample_lines(iter(texts), 10**9, seed=1).texts == texts


def test_sampling_is_told(text_file, capsys):
    train_tokenizer(ByteBPE(size=300), [text_file])
    assert capsys.readouterr().err == ""
    train_tokenizer(ByteBPE(size=300), [text_file], limit_bytes=100_000)
    notice = capsys.readouterr().err
    assert "is trained on a sample" in notice
    assert "of 1,500 lines" in notice


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A file of 30 MB in half a million lines takes a few MB; holding it in memory would take more than 60."""
    path = tmp_path / "large.txt"
    path.write_text("".join(f"{number:07d} {number * 7919 % 1000003:050d}\n" for number in range(500_000)))
    code = (
        "import resource, sys; from pathlib import Path; from regard.tokenization.algorithms import WordLevel\n"
        "from regard.tokenization.tokenizer_trainer import train_tokenizer\n"
        "train_tokenizer(WordLevel(size=100), ['a b c'] * 10)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "train_tokenizer(WordLevel(size=100), [Path(sys.argv[1])], limit_bytes=2_000_000)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 25_000
    assert "sample" in done.stderr


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ByteBPE(size=0), "a vocabulary of size=0 cannot be trained"),
        (ByteBPE(size=200), "too small: the special tokens and the 256 bytes alone are 259"),
        (WordLevel(size=4), "too small: the special tokens alone are 4"),
    ],
)
def test_impossible_sizes_are_refused(kind, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(kind, ["a man"])


def test_nothing_to_learn_from_is_an_error(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="no text to train on: all lines are empty"):
        train_tokenizer(WordLevel(), [tmp_path / "empty.txt"])
    with pytest.raises(ValueError, match="file not found"):
        train_tokenizer(WordLevel(), [tmp_path / "nowhere.txt"])
    (tmp_path / "latin.txt").write_bytes("gut\nschön\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt, line 2: byte 4 of the line"):
        train_tokenizer(WordLevel(), [tmp_path / "latin.txt"])
    with pytest.raises(ValueError, match="WordLevel needs an unknown token"):
        train_tokenizer(WordLevel(), ["a"], special_tokens=SpecialTokens(eos="</s>"))
