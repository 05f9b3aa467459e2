"""Which two tokens a token was merged from, in all the ways in which files say it."""

import json

import pytest
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models
from unit.tokenization.vocabularies import LAYOUTS, corpus

from regard.tokenization.algorithms import ByteBPE, Characters, Unigram, WordPiece, Words
from regard.tokenization.merges import merged
from regard.tokenization.tokenizer import Names, Tokenizer
from regard.tokenization.tokenizer_loader import load
from regard.tokenization.tokenizer_trainer import train


def tokenizer_of(merges, *, added=(), names=None, **options):
    """A tokenizer of the letters a, b, c and what these merges make of them."""
    made = [left + right.removeprefix("##") for left, right in merges]
    pieces = dict.fromkeys(["a", "b", "c", *(piece for merge in merges for piece in merge), *made])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    core = Core(models.BPE(vocab=vocabulary, merges=merges, **options))
    core.decoder = decoders.Fuse()
    core.add_special_tokens(list(added))
    return Tokenizer(core, names or Names())


def written(tokenizer):
    return {tokenizer.token(token): tuple(map(tokenizer.token, pair)) for token, pair in tokenizer.parts().items()}


def apart(tokenizer, ids):
    """Tokens taken apart as far as it goes."""
    parts = tokenizer.parts()
    found = []
    left = list(reversed(ids))
    while left:
        token = left.pop()
        if token in parts:
            left += reversed(parts[token])
            assert len(left) < 10**5  # nothing is a part of itself
        else:
            found.append(token)
    return found


def test_every_merge_of_a_trained_vocabulary_is_found():
    tokenizer = train(ByteBPE(size=400), corpus(600))
    found = written(tokenizer)
    merges = json.loads(tokenizer.files()["tokenizer.json"])["model"]["merges"]
    assert [list(pair) for pair in found.values()] == merges
    assert len(found) == 400 - 256 - 3
    assert all(token == left + right for token, (left, right) in found.items())
    assert {len(token) for token in tokenizer.vocabulary() if token not in found} == {
        1,
        3,
        4,
        5,
    }  # letters; <s> </s> <pad>


def test_the_first_merge_that_makes_a_token_counts():
    tokenizer = tokenizer_of([("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")])
    assert written(tokenizer) == {"ab": ("a", "b"), "bc": ("b", "c"), "abc": ("a", "bc")}


def test_both_ways_to_write_merges_down():
    pairs = {"merges": [["a", "b"], ["ab", "c d"]]}
    assert merged(pairs) == {"ab": ("a", "b"), "abc d": ("ab", "c d")}  # in which a piece may hold a space
    assert merged({"merges": ["a b", "ab c"]}) == {"ab": ("a", "b"), "abc": ("ab", "c")}
    assert merged({"vocab": {}}) == {}


def test_a_mark_inside_words_goes_when_they_are_merged():
    tokenizer = tokenizer_of([("a", "##b"), ("ab", "##c")], continuing_subword_prefix="##")
    assert written(tokenizer) == {"ab": ("a", "##b"), "abc": ("ab", "##c")}


def test_special_and_added_tokens_have_no_parts_and_are_none():
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("c", "c"), ("cc", "a")]
    assert set(written(tokenizer_of(merges))) == {"ab", "abc", "bc", "cc", "cca"}
    assert set(written(tokenizer_of(merges, added=["ab"]))) == {"bc", "cc", "cca"}
    assert set(written(tokenizer_of(merges, names=Names(end="cc")))) == {"ab", "abc", "bc"}


@pytest.mark.parametrize("kind", [WordPiece(size=400), Unigram(size=300), Words(size=200), Characters(size=300)])
def test_other_vocabularies_have_no_parts(kind):
    assert train(kind, corpus(300)).parts() == {}


@pytest.mark.parametrize("family", ["gpt", "gpt2", "roberta", "clip", "ctrl", "llama"])
def test_published_layouts(family, tmp_path):
    """What is taken apart is still the same text, in shorter tokens."""
    LAYOUTS[family][0](tmp_path)
    tokenizer = load(tmp_path, family=family)
    for row in tokenizer.ids_of(corpus(40, seed=9)):
        pieces = apart(tokenizer, row)
        assert len(pieces) > 1.5 * len(row)
        assert tokenizer.decode(pieces, keep_special=True) == tokenizer.decode(row, keep_special=True)


def test_pieces_that_a_published_vocabulary_lacks_part_nothing(tmp_path):
    LAYOUTS["ctrl"][0](tmp_path)
    tokenizer = load(tmp_path, family="ctrl")
    parts = tokenizer.parts()
    inner = json.loads(tokenizer._core.to_str())["model"]["merges"]
    assert 100 < len(parts) < len(inner)
    assert tokenizer.special.unknown not in {number for pair in parts.values() for number in pair}
    assert tokenizer.special.unknown not in parts


def test_a_control_code_that_is_a_word_stays_whole(tmp_path):
    tokens = ["<unk>", "T@@", "i@@", "p", "l", "Ti@@", "Tip", "Til"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nT i\nTi p</w>\nTi l</w>\n")
    tokenizer = load(tmp_path, family="ctrl")
    assert set(tokenizer.controls) == {"Tip"}
    assert written(tokenizer) == {"Ti@@": ("T@@", "i@@"), "Til": ("Ti@@", "l")}


def test_marian_has_no_parts(tmp_path):
    LAYOUTS["marian"][0](tmp_path)
    tokenizer = load(tmp_path)
    assert tokenizer.parts() == tokenizer.target.parts() == {}
