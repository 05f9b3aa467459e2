"""Extra tensors, missing tensors and tensors of another shape are rejected, each with its name."""

import pytest
import torch
from unit.checkpoint.folders import refusal, says, weights, write_folder, write_weights

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
WHAT_TO_DO = "Check that config.json and the weights belong to the same model"


def changed(folder, **tensors):
    """Return the error message after adding, replacing or (None) removing tensors; `__` stands for a dot."""
    all_tensors = {**weights(folder), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    write_weights(folder, {name: tensor for name, tensor in all_tensors.items() if tensor is not None})
    return refusal(folder)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path, num_hidden_layers=1)


def test_a_missing_tensor(folder):
    message = changed(folder, **{QUERY: None})
    assert says(message, "FOLDER: ", "encoder.blocks.0.attention.project.query.weight", "missing", WHAT_TO_DO)


def test_an_extra_tensor(folder):
    message = changed(folder, bert__encoder__layer__7__adapter__weight=torch.ones(2, 3))
    assert says(message, "FOLDER: ", "bert.encoder.layer.7.adapter.weight", "not used by this network", WHAT_TO_DO)


def test_a_block_too_many(folder):
    extra = {name.replace("layer.0", "layer.2"): tensor for name, tensor in weights(folder).items()}
    message = changed(folder, **extra)
    assert says(message, "FOLDER: ", "bert.encoder.layer.2.", "16 tensors", "and 4 more", WHAT_TO_DO)


@pytest.mark.parametrize("shape", [(24, 23), (25, 24), (24,), (24, 24, 1), (), (0, 24), (1, 24)])
def test_a_wrong_shape(folder, shape):
    message = changed(folder, **{QUERY: torch.ones(shape)})
    actual = "×".join(map(str, shape)) or "scalar"
    assert says(message, "FOLDER: ", QUERY, actual, "24×24", WHAT_TO_DO)


def test_a_transposed_matrix(tmp_path):
    folder = write_folder(tmp_path, "GPT2LMHeadModel")
    name = "transformer.h.0.attn.c_attn.weight"
    message = changed(folder, **{name: weights(folder)[name].t()})
    assert says(message, "FOLDER: ", name, "72×24", "24×72", WHAT_TO_DO)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool])
def test_integer_weights(folder, dtype):
    message = changed(folder, **{QUERY: torch.ones(24, 24, dtype=dtype)})
    assert says(message, "FOLDER: ", QUERY, "not a floating-point tensor", WHAT_TO_DO)


def test_all_errors_are_reported_at_once(folder):
    message = changed(
        folder, **{QUERY: torch.ones(3), "cls.predictions.transform.dense.bias": None, "mine": torch.ones(3)}
    )
    assert says(message, "3 tensors", QUERY, "head.transform.dense.bias", "mine")


@pytest.mark.parametrize(
    ("architecture", "lost", "ours"),
    [
        ("BertForMaskedLM", "cls.predictions.transform.dense.weight", "head.transform.dense.weight"),
        ("BertForTokenClassification", "classifier.bias", "head.output.bias"),
        ("BertForSequenceClassification", "classifier.weight", "head.output.weight"),
        ("BertForSequenceClassification", "bert.pooler.dense.bias", "head.transform.dense.bias"),
        ("T5ForSequenceClassification", "classification_head.dense.bias", "head.transform.dense.bias"),
    ],
)
def test_an_incomplete_head_is_an_error(tmp_path, architecture, lost, ours):
    folder = write_folder(tmp_path, architecture)
    assert says(changed(folder, **{lost: None}), "FOLDER: ", ours, "missing", WHAT_TO_DO)


def test_a_tensor_named_almost_like_a_head_is_not_ignored(tmp_path):
    folder = write_folder(tmp_path, "BertForSequenceClassification")
    message = changed(folder, classifier_old__weight=torch.ones(2, 24))
    assert says(message, "FOLDER: ", "classifier_old.weight", WHAT_TO_DO)


def test_one_norm_under_its_old_and_its_new_name(folder):
    message = changed(folder, bert__embeddings__LayerNorm__gamma=torch.ones(24))
    assert says(message, "FOLDER: ", "bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight")


def test_a_repeated_token_embedding_that_differs(tmp_path):
    folder = write_folder(tmp_path, "T5ForConditionalGeneration")
    message = changed(folder, encoder__embed_tokens__weight=torch.ones(47, 24))
    assert says(message, "FOLDER: ", "encoder.embed_tokens.weight", "should equal shared.weight", WHAT_TO_DO)


def test_a_repeated_bias_that_differs(folder):
    message = changed(folder, cls__predictions__decoder__bias=torch.ones(47))
    assert says(message, "FOLDER: ", "cls.predictions.decoder.bias", "should equal cls.predictions.bias", WHAT_TO_DO)


def test_no_tensors_of_this_family_at_all(folder):
    write_weights(folder, {f"tensor.{i}": torch.ones(2) for i in range(5)})
    assert says(refusal(folder), "FOLDER: ", "embedding.tokens.weight", "missing", WHAT_TO_DO)
