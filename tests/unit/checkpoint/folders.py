"""Small checkpoints to load, damage and compare: every size its own, every parameter random."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from regard.checkpoint.report import Origin
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.transformer.network import build

SIZES = {
    "bert": dict(
        vocab_size=47, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=19, type_vocab_size=3,
    ),
    "gpt2": dict(vocab_size=47, n_embd=24, n_layer=2, n_head=4, n_inner=37, n_positions=19),
    "bart": dict(
        vocab_size=47, d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=6, encoder_ffn_dim=37, decoder_ffn_dim=41, max_position_embeddings=19,
    ),
    "t5": dict(
        vocab_size=47, d_model=24, d_kv=5, d_ff=37, num_layers=1, num_decoder_layers=2, num_heads=4,
        relative_attention_num_buckets=6, relative_attention_max_distance=5,
    ),
    "marian": dict(
        vocab_size=47, d_model=24, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=6, encoder_ffn_dim=37, decoder_ffn_dim=41, max_position_embeddings=19, pad_token_id=46,
        scale_embedding=True,
    ),
    "llama": dict(
        vocab_size=47, hidden_size=24, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=19,
    ),
}  # fmt: skip

ARCHITECTURES = [name for family in FAMILIES.values() for name in family.architectures]


def family_of(architecture):
    return next(family for family in FAMILIES.values() if architecture in family.architectures)


def random_network(design, seed=0, dtype=torch.float32):
    """A network of which no two parameters are alike, norms and biases included."""
    network = build(design, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(torch.randn(value.shape, generator=generator))
    return network


def network_of(architecture, seed=0, dtype=torch.float32, **keys):
    family = family_of(architecture)
    return random_network(family.read({**SIZES[family.name], **keys}, architecture)[0], seed, dtype)


def write_folder(folder: Path, architecture="BertForMaskedLM", seed=0, dtype=torch.float32, **keys) -> Path:
    """A checkpoint of this class in its family's layout; `keys` change its config."""
    family = family_of(architecture)
    values = {"architectures": [architecture], "model_type": family.name, **SIZES[family.name], **keys}
    save(network_of(architecture, seed, dtype, **keys), folder, origin=Origin(family.name, architecture, values))
    return folder


def write_config(folder, values):
    (folder / "config.json").write_text(json.dumps(values))


def change_config(folder, **keys):
    write_config(folder, {**config(folder), **keys})


def config(folder):
    return json.loads((folder / "config.json").read_text())


def weights(folder):
    return load_file(folder / "model.safetensors")


def change_weights(folder, change):
    """Rewrite the tensors of a folder: `change` gets the dictionary and alters it, or returns another."""
    tensors = {name: tensor.clone() for name, tensor in weights(folder).items()}
    changed = change(tensors)
    save_file(tensors if changed is None else changed, folder / "model.safetensors")


def same(one, other):
    """Whether two networks are the same: config, names, types and every bit."""
    mine, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    return (
        one.config == other.config
        and mine.keys() == theirs.keys()
        and all(equal_bits(mine[name], theirs[name]) for name in mine)
    )


def equal_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(bits(one), bits(other))


def bits(tensor):
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().view(kind)
