"""Small checkpoints to load, corrupt and compare: different sizes on every axis, all parameters random."""

import copy
import functools
import json
import struct
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.families.common import FAMILIES

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.report import Origin
from regard.checkpoint.save import save
from regard.families.family import PublishedConfig
from regard.transformer.config import LanguageModel
from regard.transformer.network import build

SMALL = dict(
    vocab_size=47,
    **dict.fromkeys(["hidden_size", "n_embd", "d_model", "dim"], 24),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "n_layers", "decoder_layers", "num_decoder_layers"], 2),
    **dict.fromkeys(["encoder_layers", "num_layers"], 1),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"], 4),
    **dict.fromkeys(["intermediate_size", "n_inner", "dff", "d_ff", "hidden_dim", "encoder_ffn_dim"], 37),
    **dict(decoder_attention_heads=6, num_key_value_heads=2, decoder_ffn_dim=41, d_kv=5, type_vocab_size=3),
    **dict.fromkeys(["max_position_embeddings", "n_positions"], 19),
    **dict(relative_attention_num_buckets=6, relative_attention_max_distance=5),
)
"""Sizes for all families, under all their key names: small, and different for different things."""


def small(family):
    """Return a small config of a family."""
    sizes = {key: size for key, size in SMALL.items() if key in family.keys}
    return sizes | ({} if family.keys["pad_token_id"] is None else {"pad_token_id": 1})


LAYERS = [key for key in SMALL if "layer" in key]


def one_block(architecture):
    """Return the keys that reduce the stacks of a class to one block."""
    return {key: 1 for key in LAYERS if key in family_of(architecture).keys}


ARCHITECTURES = [name for family in FAMILIES.values() for name in family.architectures]


def with_words(family):
    """Return the first class of a family with a language-model head."""
    theirs = PublishedConfig(small(family), family)
    heads = {name: architecture.head(theirs) for name, architecture in family.architectures.items()}
    return next(name for name, head in heads.items() if isinstance(head, LanguageModel))


def family_of(architecture):
    return next(family for family in FAMILIES.values() if architecture in family.architectures)


def random_network(design, seed=0, dtype=torch.float32):
    """Build a network with random parameters, including norms and biases."""
    network = build(design, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(torch.randn(value.shape, generator=generator))
    return network


def network_of(architecture, seed=0, dtype=torch.float32, **keys):
    """Return the network that `write_folder` writes."""
    return copy.deepcopy(_network(architecture, seed, dtype, tuple(keys.items())))


@functools.cache
def _network(architecture, seed, dtype, keys):
    family = family_of(architecture)
    return random_network(family.read_config({**small(family), **dict(keys)}, architecture)[0], seed, dtype)


def write_folder(folder: Path, architecture="BertForMaskedLM", seed=0, dtype=torch.float32, **keys) -> Path:
    """Write a checkpoint of this class in its family's layout; `keys` change its config."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _files(architecture, seed, dtype, tuple(keys.items())).items():
        (folder / name).write_bytes(content)
    return folder


@functools.cache
def _files(architecture, seed, dtype, keys):
    family = family_of(architecture)
    values = {"architectures": [architecture], "model_type": family.name, **small(family), **dict(keys)}
    with tempfile.TemporaryDirectory() as folder:
        save(_network(architecture, seed, dtype, keys), folder, origin=Origin(family.name, architecture, values))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def config(folder):
    return json.loads((folder / "config.json").read_text())


def write_config(folder, values):
    (folder / "config.json").write_text(json.dumps(values))


def change_config(folder, **keys):
    write_config(folder, {**config(folder), **keys})


def weights(folder):
    return {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}


def write_weights(folder, tensors):
    # A new file instead of overwriting: a loaded network may still map the old one.
    (folder / "model.safetensors").unlink(missing_ok=True)
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def write_bytes(path, content):
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def write_raw(folder, header, data):
    """Write a safetensors file with this header, valid or not."""
    text = json.dumps(header).encode()
    write_bytes(folder / "model.safetensors", struct.pack("<Q", len(text)) + text + data)


def write_pickle(folder, value, **options):
    """Write an old `pytorch_model.bin` instead of the safetensors file."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save(value, folder / "pytorch_model.bin", **options)


def refusal(folder, **options):
    """Return the message of the error on loading this folder, with FOLDER in place of its path."""
    with pytest.raises(CheckpointError) as caught:
        load(folder, **options)
    return str(caught.value).replace(str(folder), "FOLDER")


def says(message, *parts):
    """Assert that a message contains all these parts."""
    missing = [str(part) for part in parts if str(part) not in message]
    assert not missing, f"the message lacks {missing}: {message}"
    return True


def same(left, right):
    """Whether two networks are the same: config, names, dtypes and every bit."""
    left_parameters, right_parameters = dict(left.named_parameters()), dict(right.named_parameters())
    return (
        left.config == right.config
        and left_parameters.keys() == right_parameters.keys()
        and all(equal_bits(left_parameters[name], right_parameters[name]) for name in left_parameters)
    )


def equal_bits(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(bits(left), bits(right))


def bits(tensor):
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().view(integer)
