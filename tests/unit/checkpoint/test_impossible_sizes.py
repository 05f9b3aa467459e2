"""Sizes that no network has: refused at once, and before anything is allocated."""

import pytest
from unit.checkpoint.folders import LAYERS, SMALL, refusal, says, weights, with_words, write_folder, write_pickle
from unit.checkpoint.limits import confined
from unit.families.common import FAMILIES

from regard.checkpoint.files import CheckpointError
from regard.checkpoint.load import load

STORED_NOWHERE = {
    ("llama", "max_position_embeddings"),
    ("t5", "relative_attention_max_distance"),
}
"""No tensor has these sizes: any is possible."""


@pytest.fixture(scope="module", params=["bert", "gpt2", "bart", "t5", "llama"])
def published(request, tmp_path_factory):
    """A family, the keys of its sizes, and the folder of one of its language models."""
    family = FAMILIES[request.param]
    folder = write_folder(tmp_path_factory.mktemp("model"), with_words(family))
    write_pickle(folder, weights(folder))  # opened faster than safetensors while types are checked
    load(folder)  # what torch itself loads at the first call is not ours to count
    return request.param, [key for key in family.keys if key in SMALL], folder


def not_refused(folder, keys, value):
    """Of these keys with this value, those that give anything but an error of ours, quickly and without memory."""
    found = {}
    for key in keys:
        try:
            with confined():
                load(folder, change={key: value})
            found[key] = "accepted"
        except CheckpointError as error:
            if str(folder) not in str(error):
                found[key] = f"the folder is not named: {error}"
        except Exception as error:
            found[key] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return found


@pytest.mark.parametrize("value", [2**31 - 1, 2**40])
def test_absurd_sizes(published, value):
    family, keys, folder = published
    found = not_refused(folder, keys, value)
    assert not {key: why for key, why in found.items() if value > 2**31 or (family, key) not in STORED_NOWHERE}


def test_absurd_sizes_all_at_once(published):
    _, keys, folder = published
    with confined():
        assert says(refusal(folder, change=dict.fromkeys(keys, 2**30)), "FOLDER")


@pytest.mark.parametrize("layers", [10**9, 10**12])
def test_a_billion_blocks(published, layers):
    _, keys, folder = published
    for key in set(keys) & set(LAYERS):
        with confined():
            assert says(refusal(folder, change={key: layers}), "FOLDER/config.json", str(layers)[:-1])


def test_a_billion_blocks_each_with_its_own_scale(tmp_path):
    folder = write_folder(tmp_path, "GPT2LMHeadModel")
    load(folder)
    with confined():
        message = refusal(folder, change={"n_layer": 10**9, "scale_attn_by_inverse_layer_idx": True})
    assert says(message, "FOLDER/config.json", 10**9)


@pytest.mark.parametrize("architecture", ["BertModel", "BertForMaskedLM"])
@pytest.mark.parametrize("key", ["vocab_size", "intermediate_size", "num_attention_heads"])
def test_negative_sizes(tmp_path, architecture, key):
    folder = write_folder(tmp_path, architecture, num_hidden_layers=1)
    assert says(refusal(folder, change={key: -1}), "FOLDER", "-1")


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_sizes_of_zero(published):
    family, keys, folder = published
    found = not_refused(folder, keys, 0)
    assert not {key: why for key, why in found.items() if (family, key) != ("llama", "max_position_embeddings")}
