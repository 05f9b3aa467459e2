"""Invalid configs of checkpoints in regard's own layout."""

import math

import pytest
from unit.checkpoint.folders import network_of, refusal, same, says, write_config, write_weights
from unit.checkpoint.limits import confined

from regard.checkpoint.load import load
from regard.transformer.config_json import to_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    network = network_of("BertForMaskedLM", num_hidden_layers=1)
    folder = tmp_path_factory.mktemp("regard")
    write_weights(folder, {name: value.detach() for name, value in network.named_parameters()})
    return folder


@pytest.fixture
def regard_folder(folder):
    """A folder in regard's own layout, and the config of its network."""
    network = network_of("BertForMaskedLM", num_hidden_layers=1)
    write_config(folder, {"model_type": "regard", "network": to_json(network.config)})
    return folder, to_json(network.config)


def test_this_network_is_read(regard_folder):
    assert same(load(regard_folder[0])[0], network_of("BertForMaskedLM", num_hidden_layers=1))


def edited(design, path, value):
    """Return a copy of a config with another value at this path."""
    first, _, rest = path.partition(".")
    key = int(first) if first.isdigit() else first
    copy = design.copy()
    copy[key] = edited(design[key], rest, value) if rest else value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("kind", "Brontosaurus", ["EncoderOnly", "'Brontosaurus'"]),
        ("model_dim", "24", ["network.model_dim", "int", "'24'"]),
        ("encoder.blocks", {}, ["network.encoder.blocks", "list"]),
        ("encoder.blocks.0.order", "sideways", ["network.encoder.blocks[0].order", "'sideways'", "'pre'"]),
        ("initialization", None, ["network.initialization", "None", "Normal"]),
        ("colour", "blue", ["network", "unknown fields ['colour']"]),
    ],
)  # fmt: skip
def test_a_value_of_another_kind(regard_folder, path, value, parts):
    folder, design = regard_folder
    write_config(folder, {"model_type": "regard", "network": edited(design, path, value)})
    assert says(refusal(folder), "FOLDER/config.json", "found" if path != "colour" else "", *parts)


@pytest.mark.parametrize("network", [None, [], "EncoderOnly", 7, {}], ids=str)
def test_a_network_that_is_not_described(regard_folder, network):
    folder, _ = regard_folder
    write_config(folder, {"model_type": "regard", "network": network})
    assert says(refusal(folder), "FOLDER/config.json", "network", "expected", "EncoderOnly")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kind", ["EncoderOnly"]),
        ("model_dim", -24),
        ("model_dim", 25),
        ("embedding.dropout", 5),
        ("embedding.tokens.vocabulary", 10**30),
        ("embedding.tokens", {"kind": "SourceTokens"}),
        ("encoder.blocks", []),
        ("encoder.layers", -1),
        ("encoder.layers", 10**9),
        ("encoder.blocks.0.attention.heads", 0),
        ("encoder.blocks.0.attention.heads", -4),
        ("encoder.blocks.0.attention.key_value_heads", 3),
        ("encoder.blocks.0.norm.epsilon", math.nan),
        ("head.vocabulary", 46),
    ],
)
def test_an_impossible_network(regard_folder, path, value):
    folder, design = regard_folder
    write_config(folder, {"model_type": "regard", "network": edited(design, path, value)})
    with confined():
        assert says(refusal(folder), "FOLDER")


def test_an_unknown_key_beside_the_network(regard_folder):
    folder, _ = regard_folder
    assert says(refusal(folder, config_overrides={"num_labels": 5}), "FOLDER/config.json", "num_labels")


def test_an_architecture_with_regards_own_layout(regard_folder):
    folder, _ = regard_folder
    assert says(refusal(folder, architecture="BertForSequenceClassification"), "BertForSequenceClassification")
