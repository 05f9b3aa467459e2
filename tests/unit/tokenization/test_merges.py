"""The merge table: the two tokens that each token was merged from, in all file formats."""

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from unit.tokenization.vocabularies import LAYOUTS, corpus

from regard.tokenization.algorithms import ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece
from regard.tokenization.merges import read_merge_table
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer


def tokenizer_of(merges, *, added=(), special_tokens=None, **options):
    """A tokenizer of the alphabet a, b, c and these merges."""
    merged = [left + right.removeprefix("##") for left, right in merges]
    tokens = dict.fromkeys(["a", "b", "c", *(token for merge in merges for token in merge), *merged])
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=merges, **options))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(list(added))
    return Tokenizer(backend, special_tokens or SpecialTokens())


def merge_tokens(tokenizer):
    """The merge table with tokens instead of ids."""
    name = tokenizer.id_to_token
    return {name(token): tuple(map(name, pair)) for token, pair in tokenizer.merge_table().items()}


def split_fully(tokenizer, ids):
    """The ids with every merge undone."""
    table = tokenizer.merge_table()
    result = []
    stack = list(reversed(ids))
    while stack:
        token = stack.pop()
        if token in table:
            stack += reversed(table[token])
            assert len(stack) < 10**5  # no token is a part of itself
        else:
            result.append(token)
    return result


def test_every_merge_of_a_trained_vocabulary_is_found():
    tokenizer = train_tokenizer(ByteBPE(size=400), corpus(600))
    found = merge_tokens(tokenizer)
    merges = json.loads(tokenizer.files()["tokenizer.json"])["model"]["merges"]
    assert [list(pair) for pair in found.values()] == merges
    assert len(found) == 400 - 256 - 3
    assert all(token == left + right for token, (left, right) in found.items())
    lengths = {len(token) for token in tokenizer.get_vocab() if token not in found}
    assert lengths == {1, 3, 4, 5}  # bytes; <s> </s> <pad>


def test_the_first_merge_that_makes_a_token_counts():
    tokenizer = tokenizer_of([("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")])
    assert merge_tokens(tokenizer) == {"ab": ("a", "b"), "bc": ("b", "c"), "abc": ("a", "bc")}


def test_both_ways_to_write_merges_down():
    pairs = {"merges": [["a", "b"], ["ab", "c d"]]}
    assert read_merge_table(pairs) == {"ab": ("a", "b"), "abc d": ("ab", "c d")}  # here a token may contain a space
    assert read_merge_table({"merges": ["a b", "ab c"]}) == {"ab": ("a", "b"), "abc": ("ab", "c")}
    assert read_merge_table({"vocab": {}}) == {}


def test_a_mark_inside_words_goes_when_they_are_merged():
    tokenizer = tokenizer_of([("a", "##b"), ("ab", "##c")], continuing_subword_prefix="##")
    assert merge_tokens(tokenizer) == {"ab": ("a", "##b"), "abc": ("ab", "##c")}


def test_special_and_added_tokens_have_no_parts_and_are_none():
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("c", "c"), ("cc", "a")]
    assert set(merge_tokens(tokenizer_of(merges))) == {"ab", "abc", "bc", "cc", "cca"}
    assert set(merge_tokens(tokenizer_of(merges, added=["ab"]))) == {"bc", "cc", "cca"}
    assert set(merge_tokens(tokenizer_of(merges, special_tokens=SpecialTokens(eos="cc")))) == {"ab", "abc", "bc"}


@pytest.mark.parametrize(
    "kind", [WordPiece(size=400), Unigram(size=300), WordLevel(size=200), CharacterLevel(size=300)]
)
def test_other_vocabularies_have_no_parts(kind):
    assert train_tokenizer(kind, corpus(300)).merge_table() == {}


@pytest.mark.parametrize("family", ["gpt", "gpt2", "roberta", "clip", "ctrl", "llama"])
def test_published_layouts(family, tmp_path):
    """Undoing merges gives the same text in shorter tokens."""
    LAYOUTS[family][0](tmp_path)
    tokenizer = load_tokenizer(tmp_path, family=family)
    for row in tokenizer.encode_batch_ids(corpus(40, seed=9)):
        parts = split_fully(tokenizer, row)
        assert len(parts) > 1.5 * len(row)
        assert tokenizer.decode(parts, skip_special_tokens=False) == tokenizer.decode(row, skip_special_tokens=False)


def test_pieces_that_a_published_vocabulary_lacks_part_nothing(tmp_path):
    LAYOUTS["ctrl"][0](tmp_path)
    tokenizer = load_tokenizer(tmp_path, family="ctrl")
    table = tokenizer.merge_table()
    backend_merges = json.loads(tokenizer._backend.to_str())["model"]["merges"]
    assert 100 < len(table) < len(backend_merges)
    assert tokenizer.special_ids.unk not in {token for pair in table.values() for token in pair}
    assert tokenizer.special_ids.unk not in table


def test_a_control_code_that_is_a_word_stays_whole(tmp_path):
    tokens = ["<unk>", "T@@", "i@@", "p", "l", "Ti@@", "Tip", "Til"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nT i\nTi p</w>\nTi l</w>\n")
    tokenizer = load_tokenizer(tmp_path, family="ctrl")
    assert set(tokenizer.control_codes) == {"Tip"}
    assert merge_tokens(tokenizer) == {"Ti@@": ("T@@", "i@@"), "Til": ("Ti@@", "l")}


def test_marian_has_no_parts(tmp_path):
    LAYOUTS["marian"][0](tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.merge_table() == tokenizer.target.merge_table() == {}
