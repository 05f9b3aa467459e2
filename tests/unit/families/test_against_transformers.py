"""Defaults and preset sizes agree with transformers, so that a config with missing keys means the same here."""

import pytest
import torch
from unit.families.common import FAMILIES
from unit.families.published import PUBLISHED

from regard.families.family import PublishedConfig
from regard.transformer.summary import count_parameters

DERIVED_KEYS = {
    *["num_decoder_layers", "scale_decoder_outputs", "decoder_vocab_size", "num_key_value_heads", "head_dim"],
    *["rope_scaling", "rope_parameters", "embedding_size"],
}
"""Keys that are None here if they follow from another key."""


@pytest.fixture(scope="module")
def transformers():
    import transformers  # imported here because it takes seconds and not every worker needs it

    return transformers


@pytest.fixture(scope="module")
def defaults(transformers):
    """The default transformers config of each family."""
    return {
        name: getattr(transformers, next(iter(family.architectures))).config_class()
        for name, family in FAMILIES.items()
    }


def test_defaults_are_the_same(defaults):
    for name, family in FAMILIES.items():
        theirs = {key: getattr(defaults[name], key) for key in family.keys if hasattr(defaults[name], key)}
        ours = PublishedConfig({}, family)
        theirs = {key: value for key, value in theirs.items() if key not in DERIVED_KEYS or ours[key] is not None}
        assert len(theirs) > 8
        assert {key: ours[key] for key in theirs} == theirs


def test_default_num_labels_is_the_same(defaults):
    ours = {name: PublishedConfig({}, family).num_labels for name, family in FAMILIES.items()}
    assert ours == {name: theirs.num_labels for name, theirs in defaults.items()}


def test_presets_without_a_published_count_have_as_many_parameters(transformers):
    for family in FAMILIES.values():
        for name in set(family.presets) - set(PUBLISHED):
            keys = dict(family.presets[name])
            model_class = getattr(transformers, keys.pop("architectures")[0])
            with torch.device("meta"):
                model = model_class(model_class.config_class(**keys))
            theirs = sum(value.numel() for value in model.parameters() if value.requires_grad)
            assert count_parameters(family.preset(name)) == theirs, name
