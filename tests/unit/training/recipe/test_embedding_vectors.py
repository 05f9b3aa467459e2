"""Embeddings that start with word vectors: which tokens, which values, and through a whole run."""

import numpy as np
import pytest
import torch
from unit.training.recipes import load_recipe, train
from unit.training.tiny_data import WORDS, write_recipe

import regard
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.recipe.embedding_vectors import project, whole_word_rows
from regard.training.recipe.preflight import check_recipe
from regard.training.recipe.schema import RecipeError
from regard.vectors.vector_files import save
from regard.vectors.word_vectors import WordVectors


def write_vectors(path, words, dim, seed=0):
    matrix = np.random.default_rng(seed).standard_normal((len(words), dim)).astype(np.float32)
    save(WordVectors(list(words), matrix), path)
    return matrix


def cosines(matrix):
    matrix = np.asarray(matrix, np.float64)
    matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix @ matrix.T


@pytest.mark.parametrize("dim", [5, 9])
def test_projection_to_more_dimensions_keeps_all_angles(dim):
    vectors = np.random.default_rng(1).standard_normal((12, 5)).astype(np.float32)
    np.testing.assert_allclose(cosines(project(vectors, dim, 3)), cosines(vectors), atol=1e-6)


def test_projection_to_fewer_dimensions_keeps_the_most():
    """No other projection to two dimensions leaves a smaller error (Eckart and Young)."""
    vectors = np.random.default_rng(1).standard_normal((12, 5)).astype(np.float32)
    values = np.linalg.svd(vectors.astype(np.float64), compute_uv=False)
    assert (project(vectors, 2, 0) ** 2).sum() == pytest.approx((values[:2] ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize(("dim", "frozen"), [(16, True), (16, False), (6, True)])
def test_a_run_starts_with_the_vectors(tmp_path, dim, frozen):
    known = WORDS[:8]
    matrix = write_vectors(tmp_path / "vectors.txt", known, dim)
    recipe = write_recipe(tmp_path / "recipe")
    overrides = {"network.embeddings": "../vectors.txt", "training.steps": 4}
    overrides |= {"training.freeze": ["source.tokens"]} if frozen else {}
    lines = []

    class Log:
        def __getattr__(self, name):
            return lambda *values, **named: lines.append(str(values[0])) if values else None

    out = train(recipe, overrides, output=tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "8 of 12 whole-word tokens start with a vector" in log
    assert ("projected from 6 to 16" in log) == (dim == 6)
    model = regard.load(out)
    tokenizer = load_tokenizer(out)
    rows = [tokenizer.token_to_id(word) for word in known]
    embedded = dict(model.network.named_parameters())["source.tokens.weight"].detach()[rows].numpy()
    difference = np.abs(cosines(embedded) - cosines(matrix)).max()
    assert difference < 1e-5 if frozen else 1e-5 < difference < 0.5
    assert torch.isfinite(torch.from_numpy(embedded)).all()


def test_only_whole_words_get_vectors(minimal_tokenizers):
    """A piece inside a word has the letters of a word, but is not one."""
    for tokenizer, whole, pieces in minimal_tokenizers:
        vectors = WordVectors(["play", "ing", "song"], np.eye(3, dtype=np.float32))
        rows, count = whole_word_rows(vectors, tokenizer)
        assert {tokenizer.id_to_token(token) for token in rows} == set(whole)
        assert not {tokenizer.id_to_token(token) for token in rows} & set(pieces)
        assert count >= len(rows)


@pytest.fixture
def minimal_tokenizers(tmp_path):
    """WordPiece, and byte-level BPE, where a word has a token of its own after a space."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    from regard.tokenization.tokenizer import SpecialTokens, Tokenizer

    letters = "playingso"
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "play", "##ing", "song", "##play"]
    pieces = {token: number for number, token in enumerate(dict.fromkeys([*vocabulary, *letters]))}
    wordpiece = tokenizers.Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    merges = [("p", "l"), ("pl", "a"), ("pla", "y"), ("Ġ", "play"), ("i", "n"), ("in", "g")]
    table = {
        token: number for number, token in enumerate(dict.fromkeys(["Ġ", *letters, *("".join(m) for m in merges)]))
    }
    bpe = tokenizers.Tokenizer(models.BPE(table, merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    # `ing` alone is encoded as this token, so in byte-level BPE it counts as a word.
    return [
        (Tokenizer(wordpiece, SpecialTokens(unk="[UNK]")), ["play", "song"], ["##ing", "##play"]),
        (Tokenizer(bpe, SpecialTokens()), ["play", "Ġplay", "ing"], []),
    ]


def test_errors_name_the_key(tmp_path):
    recipe = write_recipe(tmp_path)
    with pytest.raises(RecipeError, match=r"network\.embeddings: file not found: .*nowhere\.txt"):
        check_recipe(load_recipe(recipe, {"network.embeddings": "nowhere.txt"}))
    write_vectors(tmp_path / "other.txt", ["une", "deux"], 16)
    with pytest.raises(ValueError, match=r"network\.embeddings: none of the 12 whole-word tokens"):
        train(recipe, {"network.embeddings": "other.txt"}, output=tmp_path / "run")
