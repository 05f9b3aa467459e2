"""Random sentence encoders in the layouts of sentence-transformers, and what sentence-transformers makes of them."""

import json
import warnings

import numpy as np
import torch
from unit.checkpoint.folders import random_network
from unit.tokenization.vocabularies import LAYOUTS

from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tokenization.tokenizer_loader import load_tokenizer

TEXTS = ["one", "", "A man rides a horse along the beach, and nobody knows why.", "nineteen ninety", "two " * 60]
SIZES = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, max_position_embeddings=40,
)  # fmt: skip
CLASSES = {"bert": "BertModel", "roberta": "RobertaModel", "xlm-roberta": "XLMRobertaModel"}


def encoder_folder(folder, family="bert"):
    """A network with a tokenizer, without any file of sentence-transformers."""
    folder.mkdir(exist_ok=True)
    LAYOUTS["bert" if family == "bert" else "roberta"][0](folder)
    kind = "BertTokenizer" if family == "bert" else "RobertaTokenizer"
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "model_max_length": 38}))
    values = SIZES | dict(vocab_size=len(load_tokenizer(folder)), model_type=family, architectures=[CLASSES[family]])
    save(random_network(FAMILIES[family].read_config(values)[0]), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": family, "architectures": [CLASSES[family]]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_modules(folder, modules, poolings=("mean",), max_length=None, prompts=None, include_prompt=True):
    """The files of a release before 5.4. `modules`: what follows the pooling."""
    names = ["Transformer", "Pooling", *modules]
    rows = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    tokens = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    short = {name.removesuffix("_tokens").removesuffix("_token"): name for name in tokens}
    flags = {f"pooling_mode_{short.get(name, name)}": True for name in poolings}
    off = {} if "mean" in poolings else {"pooling_mode_mean_tokens": False}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 24, **off, **flags, "include_prompt": include_prompt})
    )
    if max_length:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_length}))
    if prompts:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return folder


def write_dense(path, inputs, outputs, activation="torch.nn.modules.activation.Tanh", seed=4):
    from safetensors.torch import save_file

    path.mkdir()
    generator = torch.Generator().manual_seed(seed)
    weights = {"linear.weight": torch.randn(outputs, inputs, generator=generator) / inputs**0.5,
               "linear.bias": torch.randn(outputs, generator=generator)}  # fmt: skip
    save_file(weights, path / "model.safetensors")
    (path / "config.json").write_text(
        json.dumps({"in_features": inputs, "out_features": outputs, "bias": True, "activation_function": activation})
    )


def their_model(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def their_vectors(folder, texts=TEXTS, **options):
    return their_model(folder).encode(list(texts), show_progress_bar=False, **options)


def matrix(results):
    return np.array([result.vector for result in results])
