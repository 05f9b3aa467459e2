"""An error in a config names its path; tests/unit/families tests which configs are errors."""

import pytest
from unit.checkpoint.folders import refusal, says, write_folder
from unit.checkpoint.limits import confined

from regard.checkpoint.load import load
from regard.families.registry import FAMILIES

CONFIG = "FOLDER/config.json: "


@pytest.fixture
def bert(tmp_path):
    return write_folder(tmp_path, num_hidden_layers=1)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("use_flux_capacitor", 88, ["'use_flux_capacitor'", "88", "Remove it"]),
        ("hidden_sise", 24, ["'hidden_sise' (did you mean 'hidden_size'?)"]),
        ("hidden_size", "24", ["hidden_size", "int", "'24'"]),
        ("num_attention_heads", 5, ["hidden_size 24", "multiple", "num_attention_heads 5"]),
    ],
)
def test_a_key_that_cannot_be_read(bert, key, value, parts):
    assert says(refusal(bert, config_overrides={key: value}), CONFIG, *parts)


def test_an_unknown_family(bert):
    message = refusal(bert, config_overrides={"model_type": "brontosaurus"})
    assert says(message, CONFIG, "unknown model_type 'brontosaurus'", "expected one of", *FAMILIES, "regard")


@pytest.mark.parametrize("value", [None, 7, "", ["bert"], {"bert": 1}], ids=str)
def test_a_family_that_is_no_name(bert, value):
    assert says(
        refusal(bert, config_overrides={"model_type": value}), CONFIG, f"unknown model_type {value!r}", *FAMILIES
    )


@pytest.mark.parametrize(
    "options",
    [{"config_overrides": {"architectures": ["BertForFun"]}}, {"architecture": "BertForFun"}],
    ids=["file", "call"],
)
def test_an_unknown_architecture(bert, options):
    assert says(refusal(bert, **options), CONFIG, "'BertForFun'", "supported: ", *FAMILIES["bert"].architectures)


def test_a_rate_that_is_no_probability(bert):
    assert says(refusal(bert, config_overrides={"hidden_dropout_prob": 1.5}), CONFIG, "hidden_dropout_prob", "1.5")


def test_a_trillion_labels_of_a_new_head(bert):
    load(bert)
    with confined():
        message = refusal(bert, architecture="BertForSequenceClassification", config_overrides={"num_labels": 10**12})
    assert says(message, CONFIG, "num_labels", 10**12)
