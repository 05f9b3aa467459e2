"""A misspelt or invalid config raises an error that names the key, and never gives a silently wrong network."""

import math

import pytest
from unit.checkpoint.folders import SMALL, says, small, with_words
from unit.families.common import FAMILIES

from regard.families.family import ConfigError, OptionalKey

OPTIONAL = {"n_inner", "num_decoder_layers", "num_key_value_heads", "head_dim", "decoder_vocab_size"}
"""Sizes whose default follows from another key."""
NEVER_READ = {"summary_activation", "num_labels"}
"""Keys that a language-model head does not read."""


def read(family, architecture=None, **keys):
    """Return the network config of a small config with these keys changed."""
    family = FAMILIES[family]
    return family.read_config({**small(family), **keys}, architecture or with_words(family))[0]


def refusal(family, architecture=None, **keys):
    with pytest.raises(ConfigError) as caught:
        read(family, architecture, **keys)
    return str(caught.value)


def not_refused(values):
    """Return those of {family: {key: value}} that do not raise an error naming the key, with what happened instead."""
    problems = {}
    for family, keys in values.items():
        for key, value in keys.items():
            try:
                read(family, **{key: value})
                problems[f"{family}.{key}"] = f"{value!r} was accepted"
            except ConfigError as error:
                if "config.json" not in str(error) or key not in str(error):
                    problems[f"{family}.{key}"] = f"not named: {error}"
            except Exception as error:
                problems[f"{family}.{key}"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return problems


def each(choose):
    """Return {family: {key: value}} for the keys for which `choose(key, default)` returns a value."""
    chosen = {
        name: {key: choose(key, default) for key, default in family.keys.items() if key not in NEVER_READ}
        for name, family in FAMILIES.items()
    }
    return {name: {key: value for key, value in keys.items() if value is not None} for name, keys in chosen.items()}


def test_an_unknown_key():
    for family in FAMILIES:
        message = refusal(family, use_flux_capacitor=88)
        assert says(message, "config.json", family, "'use_flux_capacitor'", "88", "may affect the results", "Remove it")


@pytest.mark.parametrize(
    ("family", "wrong", "right"),
    [
        ("bert", "hidden_sise", "hidden_size"),
        ("bert", "num_attention_head", "num_attention_heads"),
        ("gpt2", "n_heads", "n_head"),
        ("bart", "scale_embeddings", "scale_embedding"),
        ("t5", "d_modle", "d_model"),
        ("marian", "share_encoder_decoder_embedding", "share_encoder_decoder_embeddings"),
        ("llama", "rope_tetha", "rope_theta"),
    ],
)
def test_a_misspelt_key_suggests_the_right_one(family, wrong, right):
    assert says(refusal(family, **{wrong: 1}), "config.json", f"{wrong!r} (did you mean {right!r}?)")


def test_a_text_a_list_or_true_where_a_number_should_be():
    texts = not_refused(each(lambda key, default: None if isinstance(default, str) else "many"))
    lists = not_refused(each(lambda key, default: [1, 2]))
    truth = not_refused(each(lambda key, default: True if type(default) in (int, float) else None))
    assert not texts | lists | truth


def test_half_a_block():
    assert not not_refused(each(lambda key, default: 1.5 if type(default) is int or key in OPTIONAL else None))


def test_negative_sizes():
    assert not not_refused(each(lambda key, _: -1 if key in SMALL or key in OPTIONAL else None))


def test_sizes_that_no_network_has():
    assert not not_refused(each(lambda key, _: 10**30 if key in SMALL or key in OPTIONAL else None))


def test_null_where_something_is_needed():
    needed = {
        name: {
            key: None
            for key, default in family.keys.items()
            if not isinstance(default, OptionalKey) and key not in NEVER_READ
        }
        for name, family in FAMILIES.items()
    }
    problems = not_refused(needed)
    for name in list(problems):
        family, _, key = name.partition(".")
        if key == "pad_token_id":
            del problems[name]  # null is valid: no padding token
        elif "accepted" in problems[name] and read(family, **{key: None}) == read(family):
            del problems[name]  # null may mean the default
    assert not problems


def test_rates_that_are_no_probability():
    problems = {}
    for rate in (-0.1, 1.5, math.nan):
        problems |= not_refused(each(lambda key, _, rate=rate: rate if "drop" in key else None))
    assert not problems


def test_numbers_that_make_every_output_nan():
    problems = {}
    for value in (math.nan, -1.0):
        problems |= not_refused(each(lambda key, _, value=value: value if "eps" in key or "theta" in key else None))
    assert not problems


@pytest.mark.parametrize(
    ("key", "value"),
    [("num_labels", "five"), ("num_labels", -1), ("num_labels", 0), ("num_labels", 2.5), ("num_labels", 10**12),
     ("id2label", 5), ("id2label", {}), ("id2label", "ab")],
    ids=str,
)  # fmt: skip
def test_labels_that_cannot_be_counted(key, value):
    assert says(refusal("bert", "BertForSequenceClassification", **{key: value}), "config.json", key, repr(value))


@pytest.mark.parametrize(
    ("family", "keys", "parts"),
    [
        ("bert", {"num_attention_heads": 5}, ["hidden_size 24", "num_attention_heads 5"]),
        ("gpt2", {"n_head": 7}, ["n_embd 24", "n_head 7"]),
        ("bart", {"decoder_attention_heads": 5}, ["d_model 24", "decoder_attention_heads 5"]),
        ("llama", {"num_attention_heads": 5}, ["hidden_size 24", "num_attention_heads 5"]),
        ("llama", {"num_key_value_heads": 3}, ["num_attention_heads 4", "num_key_value_heads 3"]),
    ],
    ids=str,
)
def test_heads_that_do_not_divide(family, keys, parts):
    assert says(refusal(family, **keys), "config.json", "not a multiple", *parts)


@pytest.mark.parametrize(
    ("family", "keys", "parts"),
    [
        ("bert", {"hidden_act": "swoosh"}, ["hidden_act", "'swoosh'", "gelu, gelu_new"]),
        ("bert", {"position_embedding_type": "relative_key"}, ["'relative_key'", "'absolute'"]),
        ("bert", {"pruned_heads": {"0": [1]}}, ["pruned_heads"]),
        ("bart", {"normalize_before": True}, ["normalize_before", "True", "only with False"]),
        ("marian", {"static_position_embeddings": False}, ["static_position_embeddings", "False", "only with True"]),
        ("t5", {"feed_forward_proj": "gated-swoosh"}, ["feed_forward_proj", "swoosh", "gelu"]),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, ["'yarn'", "default, linear and llama3"]),
    ],
    ids=str,
)
def test_unsupported_values_are_named(family, keys, parts):
    assert says(refusal(family, **keys), "config.json", *parts)


@pytest.mark.parametrize(
    "rope",
    [
        "linear",
        ["linear"],
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": "two"},
        {"rope_type": "linear", "factor": 2.0, "fcator": 3.0},
        {"rope_type": "llama3", "factor": 8.0},
        {"rope_theta": None},
    ],
    ids=str,
)
def test_rotary_positions_that_cannot_be_read(rope):
    assert says(refusal("llama", rope_scaling=rope), "config.json", "rope_scaling")
    assert says(refusal("llama", rope_parameters=rope), "config.json", "rope_parameters")


@pytest.mark.parametrize("value", ["BertModel", 7, {"BertModel": 1}], ids=str)
def test_architectures_that_are_no_list(value):
    with pytest.raises(ConfigError) as caught:
        FAMILIES["bert"].read_config({"architectures": value})
    assert says(str(caught.value), "config.json", "architectures", repr(value))
