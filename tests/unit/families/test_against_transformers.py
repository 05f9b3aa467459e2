"""Defaults and sizes as transformers has them, so that what a config leaves out means the same here."""

import pytest
import torch
from unit.families.common import FAMILIES
from unit.families.published import PUBLISHED

from regard.families.family import Theirs
from regard.transformer.module_tree import count

FOLLOWS = {
    *["num_decoder_layers", "scale_decoder_outputs", "decoder_vocab_size", "num_key_value_heads", "head_dim"],
    *["rope_scaling", "rope_parameters", "embedding_size"],
}
"""Keys that are None here where another key says it."""


@pytest.fixture(scope="module")
def transformers():
    import transformers  # here and not above: it takes seconds, and every worker would pay them

    return transformers


@pytest.fixture(scope="module")
def defaults(transformers):
    """The default config of each family."""
    return {
        name: getattr(transformers, next(iter(family.architectures))).config_class()
        for name, family in FAMILIES.items()
    }


def test_what_a_config_leaves_out_is_the_same(defaults):
    for name, family in FAMILIES.items():
        theirs = {key: getattr(defaults[name], key) for key in family.keys if hasattr(defaults[name], key)}
        ours = Theirs({}, family)
        theirs = {key: value for key, value in theirs.items() if key not in FOLLOWS or ours[key] is not None}
        assert len(theirs) > 8
        assert {key: ours[key] for key in theirs} == theirs


def test_labels_that_a_config_leaves_out_are_as_many(defaults):
    ours = {name: Theirs({}, family).labels for name, family in FAMILIES.items()}
    assert ours == {name: theirs.num_labels for name, theirs in defaults.items()}


def test_presets_that_nobody_has_counted_have_as_many_parameters(transformers):
    for family in FAMILIES.values():
        for name in set(family.presets) - set(PUBLISHED):
            keys = dict(family.presets[name])
            kind = getattr(transformers, keys.pop("architectures")[0])
            with torch.device("meta"):
                model = kind(kind.config_class(**keys))
            theirs = sum(value.numel() for value in model.parameters() if value.requires_grad)
            assert count(family.preset(name)) == theirs, name
