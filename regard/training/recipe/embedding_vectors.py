"""Word vectors as the first values of a network's token embeddings: `[network] embeddings = "vectors.txt"`.

Only tokens that are whole words get a vector: those that encode their own text, alone or after a space, as this single
token. Pieces of words, special tokens and words without a vector keep their random values. `training.freeze =
["embedding.tokens"]` (or `["source.tokens"]`) keeps the embeddings constant.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.tokenization.tokenizer import Tokenizer
from regard.transformer.embedding import Tokens
from regard.vectors.vector_files import load
from regard.vectors.word_vectors import WordVectors

Rows = dict[int, NDArray[np.float32]]


def initialize_embeddings(network: nn.Module, tokenizer: Tokenizer, path: str, seed: int) -> list[str]:
    """Set the token embeddings of a network; return a line for each about its coverage.

    The vectors are scaled to the standard deviation of the random values that they replace, since the network is
    designed for it. If the sizes differ, they are projected: to more dimensions by a random rotation, which keeps all
    angles, to fewer by their principal components.
    """
    vectors = load(path)
    messages = []
    for name, module in _token_embeddings(network):
        side = tokenizer.target if name.startswith("target.") else tokenizer
        rows, words = whole_word_rows(vectors, side)
        if not rows:
            raise ValueError(f"network.embeddings: none of the {words:,} whole-word tokens has a vector in {path}")
        ids = [token for token in rows if token < len(module.weight)]
        values = project(np.stack([rows[token] for token in ids]), module.weight.shape[1], seed)
        with torch.no_grad():
            deviation = module.weight.float().std().item()
            scaled = values * (deviation / max(float(np.sqrt((values**2).mean())), 1e-30))
            module.weight[ids] = torch.from_numpy(scaled.astype(np.float32)).to(module.weight)
        projection = (
            ""
            if vectors.dim == module.weight.shape[1]
            else (f", projected from {vectors.dim} to {module.weight.shape[1]} numbers")
        )
        messages.append(
            f"{name}: {len(ids):,} of {words:,} whole-word tokens start with a vector of {path} "
            f"({len(ids) / words:.1%}; {len(side):,} tokens in all){projection}"
        )
    return messages


def _token_embeddings(network: nn.Module) -> Iterator[tuple[str, Tokens]]:
    """Yield the token embedding matrices: one, or those of source and target if these are separate."""
    found = False
    for name, module in network.named_modules():
        if isinstance(module, Tokens) and name.endswith(".tokens"):
            found = True
            yield name, module
    if not found:
        raise ValueError("network.embeddings: the network has no single token embedding matrix for word vectors")


def whole_word_rows(vectors: WordVectors, tokenizer: Tokenizer) -> tuple[Rows, int]:
    """Return the vectors of whole-word tokens by id, and the number of whole-word tokens.

    A word is looked up as it is, then in lower case. With character n-grams, unknown words have vectors too.
    """
    texts = {}
    for token in range(len(tokenizer)):
        try:
            text = tokenizer.decode([token])
        except ValueError:  # a part of a character
            continue
        if text.strip() and "\ufffd" not in text and not any(character.isspace() for character in text.strip()):
            texts[token] = text
    words = {
        token: text.strip()
        for (token, text), ids in zip(
            texts.items(), tokenizer.encode_batch_ids(list(texts.values()), add_special_tokens=False), strict=True
        )
        if ids == [token]
    }
    rows: Rows = {}
    for token, word in words.items():
        name = next((name for name in (word, word.lower()) if name in vectors), word)
        if name in vectors or (vectors.ngrams and vectors.ngrams.vector(name) is not None):
            rows[token] = vectors[name]
    return rows, len(words)


def project(vectors: NDArray[np.float32], dim: int, seed: int) -> NDArray[np.float64]:
    """Return vectors of another size: rotated into more dimensions, or their principal components."""
    values = vectors.astype(np.float64)
    if dim == values.shape[1]:
        return values
    if dim > values.shape[1]:
        matrix = np.random.default_rng(seed).standard_normal((dim, values.shape[1]))
        return values @ np.linalg.qr(matrix)[0].T
    _, directions = np.linalg.eigh(values.T @ values)
    return values @ directions[:, ::-1][:, :dim]
