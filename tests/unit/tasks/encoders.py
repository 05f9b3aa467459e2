"""Small random encoders in folders, in the layout of their family, with a vocabulary and labels."""

import torch
from unit.checkpoint.folders import SMALL
from unit.tokenization import vocabularies

import regard
from regard.checkpoint.model_folder import Companions, ModelInfo
from regard.checkpoint.report import Origin
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.transformer.network import build

TEXTS = [
    "Anna's cat weighs 3.14 kg.",
    "the small dog runs along the beach",
    "a",
    "Der Mann sieht das Pferd - and 42 horses (in New York)!",
    "under the tree " * 3,
]


def encoder(folder, architecture, vocabulary=vocabularies.bert, labels=(), info=None, scale=0.4, seed=5, **config):
    """Write a folder with a random network of this class; return the folder."""
    folder.mkdir(exist_ok=True, parents=True)
    vocabulary(folder)
    family = next(family for family in FAMILIES.values() if architecture in family.architectures)
    values = {key: size for key, size in SMALL.items() if key in family.keys}
    values |= {"d_inner": 37} if family.name == "xlnet" else {}
    values |= {"vocab_size": len(load_tokenizer(folder))} | config
    if labels:
        values |= {"num_labels": len(labels)}
    values |= {"architectures": [architecture], "model_type": family.name}
    network = build(family.read_config(values, architecture)[0], seed=1).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in network.named_parameters():
            centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            value.copy_(torch.randn(value.shape, generator=generator) * scale + centre)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("config.json",)}
    details = ModelInfo(**(info or {}))
    if labels:
        details["labels"] = list(labels)
    save(network, folder, origin=Origin(family.name, architecture, values), companions=Companions(files, details))
    return folder


def opened(folder, precision="float64"):
    return regard.load(folder, precision=precision)
