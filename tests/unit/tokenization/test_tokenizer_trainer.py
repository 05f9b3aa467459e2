"""Training: the same texts give the same files in every process, memory is bounded, and sampling is fair and told."""

import gzip
import hashlib
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import models, pre_tokenizers, trainers
from unit.tokenization.vocabularies import corpus

from regard.tokenization.algorithms import ByteBPE, Characters, Unigram, WordPiece, Words
from regard.tokenization.line_sample import OVERHEAD, sample
from regard.tokenization.tokenizer import Names
from regard.tokenization.tokenizer_trainer import train

KINDS = [WordPiece(size=500), ByteBPE(size=500), Unigram(size=400), Words(size=300), Characters(size=200)]
ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)

PROGRAM = """
import hashlib, sys
from pathlib import Path
from regard.text.kinds import *
from regard.text.train import train
for kind in (WordPiece(size=500), ByteBPE(size=500), Unigram(size=400), Words(size=300), Characters(size=200)):
    files = train(kind, [Path(sys.argv[1])], seed=5, limit_bytes=150_000).files()
    print(type(kind).__name__, hashlib.sha256(b"".join(files.values())).hexdigest())
"""


def digest(tokenizer):
    return hashlib.sha256(b"".join(tokenizer.files().values())).hexdigest()


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "train.txt"
    path.write_text("\n".join(corpus(1500)) + "\n", "utf-8")
    return path


def test_two_processes_give_the_same_files_byte_for_byte(text_file):
    """A sample is drawn too: the file is larger than the limit."""
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
    assert digest(train(kind, lines)) == digest(train(kind, lines[::-1]))


@ALL
def test_special_tokens_come_first_and_the_size_is_kept(kind):
    tokenizer = train(kind, corpus(500), extra=["<new>", ">>de<<"])
    assert len(tokenizer) <= kind.size
    if not isinstance(kind, Words | Characters):
        assert len(tokenizer) == kind.size
    first = [tokenizer.token(number) for number in range(6)]
    assert {"<new>", ">>de<<", tokenizer.names.padding} <= set(first) | {tokenizer.token(6)}
    assert tokenizer.special.padding == 0
    row = tokenizer.encode("a <new> man", read_special=True, special_tokens=False)
    assert tokenizer.id("<new>") in row.ids


@ALL
def test_names_of_special_tokens_can_be_chosen(kind):
    names = Names(padding="[P]", unknown="[U]", end="[E]", begin="[B]")
    tokenizer = train(kind, corpus(300), special=names)
    assert tokenizer.encode("a man").ids[-1] == tokenizer.special.end == tokenizer.id("[E]")
    if not isinstance(kind, ByteBPE):
        assert tokenizer.special.unknown in tokenizer.encode("\U0001f9ff").ids


@pytest.mark.parametrize(("ending", "opener"), [(".gz", gzip.open), (".xz", lzma.open), ("", open)])
def test_files_may_be_compressed(ending, opener, text_file, tmp_path):
    path = tmp_path / f"train.txt{ending}"
    with opener(path, "wb") as stream:
        stream.write(text_file.read_bytes())
    assert digest(train(KINDS[1], [path])) == digest(train(KINDS[1], text_file.read_text("utf-8").splitlines()))


def test_one_vocabulary_for_two_sides(tmp_path):
    (tmp_path / "a").write_text("aaa\n" * 9)
    (tmp_path / "b").write_text("bbb\n" * 9)
    shared = train(Words(size=10), [tmp_path / "a", tmp_path / "b"])
    one = train(Words(size=10), [tmp_path / "a"])
    assert {"aaa", "bbb"} <= set(shared.vocabulary())
    assert "bbb" not in one.vocabulary()


def test_words_and_characters_are_the_most_frequent_ones():
    lines = corpus(500)
    words = Counter(word for line in lines for word in line.split())
    ranked = sorted(words, key=lambda word: (-words[word], word))[:96]
    assert set(train(Words(size=100), lines).vocabulary()) == {"<pad>", "<unk>", "<s>", "</s>", *ranked}
    often = {word for word, count in words.items() if count >= 3}
    assert set(train(Words(size=10**6, minimum=3), lines).vocabulary()) >= often
    letters = Counter("\n".join(lines))
    ranked = sorted(letters, key=lambda letter: (-letters[letter], letter))[:26]
    assert set(train(Characters(size=30), lines).vocabulary()) == {"<pad>", "<unk>", "<s>", "</s>", *ranked}


def test_unigram_is_no_worse_than_the_librarys_trainer():
    """It is our own because theirs differs from run to run; it must cut new texts into no more pieces."""
    size, lines, new = 600, corpus(800), corpus(300, seed=8)
    ours = train(Unigram(size=size), lines)
    core = Core(models.Unigram())
    core.normalizer, core.pre_tokenizer = ours._core.normalizer, pre_tokenizers.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False)
    core.train_from_iterator(lines, trainer)
    theirs = sum(len(row.ids) for row in core.encode_batch(new))
    assert sum(map(len, ours.ids_of(new, special_tokens=False))) <= 1.02 * theirs


def test_a_sample_is_fair_bounded_and_fixed():
    texts = [f"text number {number:06d}" for number in range(50_000)]
    limit = 400_000
    taken = sample(iter(texts), limit, seed=1)
    assert limit / 2.2 < sum(len(text) + OVERHEAD for text in taken.texts) <= limit
    assert (taken.lines, taken.bytes) == (50_000, sum(map(len, texts)))
    assert taken.texts == sorted(set(taken.texts))  # in their order, none twice
    halves = Counter(int(text[-6:]) < 25_000 for text in taken.texts)
    assert abs(halves[True] - halves[False]) < 5 * len(taken.texts) ** 0.5
    assert sample(iter(texts), limit, seed=1) == taken
    assert sample(iter(texts), limit, seed=2) != taken
    assert sample(iter(texts), 10**9, seed=1).texts == texts


def test_sampling_is_told(text_file, capsys):
    train(ByteBPE(size=300), [text_file])
    assert capsys.readouterr().err == ""
    train(ByteBPE(size=300), [text_file], limit_bytes=100_000)
    said = capsys.readouterr().err
    assert "sample" in said
    assert "of 1,500 lines" in said


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A file of 30 MB, in half a million lines, within a few MB: held whole, it would take more than 60."""
    path = tmp_path / "large.txt"
    path.write_text("".join(f"{number:07d} {number * 7919 % 1000003:050d}\n" for number in range(500_000)))
    code = (
        "import resource, sys; from pathlib import Path; from regard.tokenization.algorithms import Words\n"
        "from regard.tokenization.tokenizer_trainer import train\n"
        "train(Words(size=100), ['a b c'] * 10)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "train(Words(size=100), [Path(sys.argv[1])], limit_bytes=2_000_000)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 25_000
    assert "sample" in done.stderr


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ByteBPE(size=0), "a vocabulary of 0 tokens cannot be trained"),
        (ByteBPE(size=200), "too small: the special tokens and the 256 bytes alone are 259"),
        (Words(size=4), "too small: the special tokens alone are 4"),
    ],
)
def test_impossible_sizes_are_refused(kind, said):
    with pytest.raises(ValueError, match=said):
        train(kind, ["a man"])


def test_nothing_to_learn_from_is_an_error(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(ValueError, match="all lines are empty"):
        train(Words(), [tmp_path / "empty.txt"])
    with pytest.raises(ValueError, match="there is no such file"):
        train(Words(), [tmp_path / "nowhere.txt"])
    (tmp_path / "latin.txt").write_bytes("gut\nschön\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt, line 2: byte 4 of the line"):
        train(Words(), [tmp_path / "latin.txt"])
    with pytest.raises(ValueError, match="needs a token for what is unknown"):
        train(Words(), ["a"], special=Names(end="</s>"))
