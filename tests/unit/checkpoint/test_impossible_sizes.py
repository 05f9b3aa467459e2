"""Absurd sizes are rejected at once, before anything is allocated."""

import pytest
from unit.checkpoint.folders import LAYERS, SMALL, refusal, says, weights, with_words, write_folder, write_pickle
from unit.checkpoint.limits import confined
from unit.families.common import FAMILIES

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError

STORED_NOWHERE = {
    ("llama", "max_position_embeddings"),
    ("t5", "relative_attention_max_distance"),
}
"""No tensor has these sizes, so any value is accepted."""


@pytest.fixture(scope="module", params=["bert", "gpt2", "bart", "t5", "llama"])
def published(request, tmp_path_factory):
    """A family, the keys of its sizes, and the folder of one of its language models."""
    family = FAMILIES[request.param]
    folder = write_folder(tmp_path_factory.mktemp("model"), with_words(family))
    write_pickle(folder, weights(folder))  # opened faster than safetensors with runtime type checking
    load(folder)  # what torch loads at the first call is not counted
    return request.param, [key for key in family.keys if key in SMALL], folder


def not_refused(folder, keys, value):
    """Return the keys that, with this value, do not raise a CheckpointError quickly and without memory."""
    problems = {}
    for key in keys:
        try:
            with confined():
                load(folder, config_overrides={key: value})
            problems[key] = "accepted"
        except CheckpointError as error:
            if str(folder) not in str(error):
                problems[key] = f"the folder is not named: {error}"
        except Exception as error:
            problems[key] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return problems


@pytest.mark.parametrize("value", [2**31 - 1, 2**40])
def test_absurd_sizes(published, value):
    family, keys, folder = published
    problems = not_refused(folder, keys, value)
    assert not {key: why for key, why in problems.items() if value > 2**31 or (family, key) not in STORED_NOWHERE}


def test_absurd_sizes_all_at_once(published):
    _, keys, folder = published
    with confined():
        assert says(refusal(folder, config_overrides=dict.fromkeys(keys, 2**30)), "FOLDER")


@pytest.mark.parametrize("layers", [10**9, 10**12])
def test_a_billion_blocks(published, layers):
    _, keys, folder = published
    for key in set(keys) & set(LAYERS):
        with confined():
            assert says(refusal(folder, config_overrides={key: layers}), "FOLDER/config.json", str(layers)[:-1])


def test_a_billion_blocks_each_with_its_own_scale(tmp_path):
    folder = write_folder(tmp_path, "GPT2LMHeadModel")
    load(folder)
    with confined():
        message = refusal(folder, config_overrides={"n_layer": 10**9, "scale_attn_by_inverse_layer_idx": True})
    assert says(message, "FOLDER/config.json", 10**9)


@pytest.mark.parametrize("architecture", ["BertModel", "BertForMaskedLM"])
@pytest.mark.parametrize("key", ["vocab_size", "intermediate_size", "num_attention_heads"])
def test_negative_sizes(tmp_path, architecture, key):
    folder = write_folder(tmp_path, architecture, num_hidden_layers=1)
    assert says(refusal(folder, config_overrides={key: -1}), "FOLDER", "-1")


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_zero(published):
    family, keys, folder = published
    problems = not_refused(folder, keys, 0)
    assert not {key: why for key, why in problems.items() if (family, key) != ("llama", "max_position_embeddings")}
