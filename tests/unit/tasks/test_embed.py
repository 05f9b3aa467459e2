"""Vectors of texts equal those of sentence-transformers for its folders, and their definition for others."""

import json
import logging

import numpy as np
import pytest
import torch
from unit.tasks.sentence_encoders import (
    TEXTS,
    encoder_folder,
    matrix,
    their_model,
    their_vectors,
    write_dense,
    write_modules,
)

import regard
from regard.checkpoint.model_folder import CheckpointError, ModelFolder
from regard.checkpoint.sentence_folder import SentenceEncoder, read_sentence_encoder, sentence_encoder_files
from regard.transformer.config import Pooling
from regard.transformer.text_embedder import TextEmbedder, TextEmbedding, UnitLength

pytestmark = pytest.mark.filterwarnings("ignore:::transformers", "ignore:::sentence_transformers", "ignore:::torch")
logging.disable(logging.WARNING)


def largest_difference(left, right):
    """Relative to the largest number: both compute in float32."""
    assert left.shape == right.shape
    return np.abs(left - right).max() / max(1, np.abs(right).max())


def layouts(folder):
    return {
        "mean": lambda: write_modules(folder, ["Normalize"], max_length=16),
        "cls": lambda: write_modules(folder, [], ("cls",)),
        "lasttoken and max": lambda: write_modules(folder, ["Normalize"], ("lasttoken", "max")),
        "mean_sqrt_len_tokens": lambda: write_modules(folder, [], ("mean_sqrt_len_tokens", "weightedmean")),
        "dense": lambda: (
            write_modules(folder, ["Dense", "Dense", "Normalize"], max_length=11),
            write_dense(folder / "2_Dense", 24, 17),
            write_dense(folder / "3_Dense", 17, 9, "torch.nn.modules.linear.Identity"),
        ),
    }


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("layout", layouts(None))
def test_vectors_equal_those_of_sentence_transformers(tmp_path, family, layout):
    folder = encoder_folder(tmp_path / "model", family)
    layouts(folder)[layout]()
    expected = their_vectors(folder)
    model = regard.load(folder)
    assert largest_difference(matrix(model.embed(TEXTS)), expected) < 2e-6
    single = model.embed(TEXTS[2])
    assert largest_difference(np.array(single.vector), expected[2]) < 2e-6
    # what we save, opened by both
    model.save(tmp_path / "saved")
    assert largest_difference(their_vectors(tmp_path / "saved"), expected) < 2e-6
    assert largest_difference(matrix(regard.load(tmp_path / "saved").embed(TEXTS)), expected) < 2e-6
    # what the newest release saves
    their_model(folder).save(str(tmp_path / "theirs"), create_model_card=False)
    assert largest_difference(matrix(regard.load(tmp_path / "theirs").embed(TEXTS)), expected) < 2e-6


def test_a_long_text_is_truncated_where_sentence_transformers_truncates_it_and_says_so(tmp_path):
    folder = write_modules(encoder_folder(tmp_path / "model"), ["Normalize"], max_length=16)
    result = regard.load(folder).embed(TEXTS[4])
    tokens = len(regard.load(folder).tokenizer.encode(TEXTS[4]))
    assert result.truncated == tokens - 16 > 0


def test_prompts_are_put_before_texts_and_may_be_left_out_of_the_pooling(tmp_path):
    folder = encoder_folder(tmp_path / "model")
    write_modules(folder, ["Normalize"], prompts={"query": "nine two "}, include_prompt=False)
    model = regard.load(folder)
    for name, ours in (("query", "query"), (None, None)):
        expected = their_vectors(folder, TEXTS[:4], prompt_name=name)
        assert largest_difference(matrix(model.embed(TEXTS[:4], prompt=ours)), expected) < 2e-6
    literal = their_vectors(folder, TEXTS[:4], prompt="three: ")
    assert largest_difference(matrix(model.embed(TEXTS[:4], prompt="three: ")), literal) < 2e-6


def test_truncated_dimensions_equal_those_of_sentence_transformers(tmp_path):
    folder = write_modules(encoder_folder(tmp_path / "model"), ["Normalize"])
    model = regard.load(folder)
    for normalize in (False, True):
        expected = their_vectors(folder, truncate_dim=10, normalize_embeddings=normalize)
        assert largest_difference(matrix(model.embed(TEXTS, truncate_dim=10, normalize=normalize)), expected) < 2e-6
    with pytest.raises(ValueError, match="truncate_dim is 25, but the vectors have only 24"):
        model.embed(TEXTS, truncate_dim=25)


def test_files_that_we_write_are_read_by_sentence_transformers(tmp_path):
    folder = encoder_folder(tmp_path / "model")
    design = TextEmbedding(poolings=(Pooling.MEAN,), layers=(UnitLength(),))
    encoder = SentenceEncoder(embedder=TextEmbedder(design), max_length=12, prompts={"query": "one: "})
    for name, content in sentence_encoder_files(encoder, 24).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    read = read_sentence_encoder(folder)
    assert (read.embedder.design, read.max_length, read.prompts) == (design, 12, {"query": "one: "})
    theirs = their_model(folder)
    assert (theirs.max_seq_length, theirs.prompts["query"]) == (12, "one: ")
    assert largest_difference(matrix(regard.load(folder).embed(TEXTS)), their_vectors(folder)) < 2e-6


def test_a_folder_without_pooling_is_mean_pooled_and_other_poolings_can_be_chosen(tmp_path):
    model = regard.load(encoder_folder(tmp_path / "model"), precision="float64")
    ids = torch.tensor([model.tokenizer.encode(TEXTS[2]).ids])
    hidden = model.network(ids).hidden[0].detach()
    expected = {"mean": hidden.mean(0), "first": hidden[0], "last": hidden[-1], "max": hidden.max(0).values}
    for name, vector in expected.items():
        result = model.embed(TEXTS[2], pooling=name)
        assert largest_difference(np.array(result.vector), vector.float().numpy()) < 1e-5
    assert model.embed(TEXTS[2]) == model.embed(TEXTS[2], pooling="mean")
    with pytest.raises(ValueError, match="pooling is 'median'; expected mean, first, max, last"):
        model.embed("one", pooling="median")


def test_the_mean_of_a_long_text_is_that_of_its_windows(tmp_path):
    folder = encoder_folder(tmp_path / "model")
    words = TEXTS[4].split()
    per_word = len(regard.load(folder).tokenizer.encode("two")) - 2
    model = regard.load(write_modules(folder, [], max_length=7 * per_word + 2))  # windows end between words
    result = model.embed(TEXTS[4], long="mean")
    parts = [" ".join(words[i : i + 7]) for i in range(0, len(words), 7)]
    assert (result.truncated, result.windows) == (0, len(parts))
    lengths = [len(part.split()) * per_word + 2 for part in parts]
    expected = np.average(matrix(model.embed(parts)), axis=0, weights=lengths)
    assert largest_difference(np.array(result.vector), expected) < 2e-6


def test_vectors_of_words_are_the_means_of_their_tokens(tmp_path):
    model = regard.load(encoder_folder(tmp_path / "model"))
    text = TEXTS[2]
    result = model.embed(text, tokens=True)
    assert [word.text for word in result.words][:3] == ["A", "man", "rides"]
    assert all(text[word.start : word.end] == word.text for word in result.words)
    encoding = model.tokenizer.encode(text)
    hidden = model.network(torch.tensor([encoding.ids])).hidden[0]
    for word in result.words:
        inside = [i for i, (start, end) in enumerate(encoding.offsets) if start < word.end and end > word.start]
        expected = hidden[inside].mean(0).detach().numpy()
        assert largest_difference(np.array(word.vector), expected) < 2e-6
    prompted = model.embed(text, tokens=True, prompt="one two: ")
    assert [word.text for word in prompted.words] == [word.text for word in result.words]


def test_int8_vectors_are_the_rounded_vectors(tmp_path):
    model = regard.load(encoder_folder(tmp_path / "model"))
    exact, rounded = matrix(model.embed(TEXTS)), model.embed(TEXTS, int8=True)
    for vector, result in zip(exact, rounded, strict=True):
        assert all(isinstance(number, int) and -127 <= number <= 127 for number in result.vector)
        assert np.abs(np.array(result.vector) * result.scale - vector).max() <= result.scale / 2 * 1.001


def test_a_text_has_the_same_vector_in_every_batch(tmp_path):
    model = regard.load(encoder_folder(tmp_path / "model"))
    alone = np.array([model.embed(text).vector for text in TEXTS])
    for batch_tokens in (1, 30, 4096):
        assert largest_difference(matrix(model.embed(TEXTS, batch_tokens=batch_tokens)), alone) < 1e-5


BROKEN = {
    "modules.json": ("[1]", "expected a list of modules"),
    "1_Pooling/config.json": ('{"pooling_mode": "median"}', "expected some of cls, max, mean"),
    "sentence_bert_config.json": ('{"max_seq_length": "many"}', "expected a number of tokens"),
    "config_sentence_transformers.json": ('{"default_prompt_name": "query"}', "the prompts are none"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_named(tmp_path, name):
    folder = write_modules(encoder_folder(tmp_path / "model"), ["Normalize"])
    text, message = BROKEN[name]
    (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=message) as error:
        regard.load(folder).embed("one")
    assert name.split("/")[0] in str(error.value)


def test_modules_that_are_not_supported_and_paths_outside_are_refused(tmp_path):
    folder = write_modules(encoder_folder(tmp_path / "model"), ["CNN"])
    with pytest.raises(CheckpointError, match=r"'CNN'.* is not supported"):
        read_sentence_encoder(folder)
    rows = json.loads((folder / "modules.json").read_text())
    rows[2]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(rows))
    with pytest.raises(CheckpointError, match="leaves the folder"):
        read_sentence_encoder(folder)


def test_a_folder_without_modules_is_no_sentence_encoder(tmp_path):
    assert read_sentence_encoder(encoder_folder(tmp_path / "model")) is None
    assert ModelFolder(tmp_path / "model").info == {}
