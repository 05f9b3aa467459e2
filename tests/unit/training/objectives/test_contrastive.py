"""Contrastive objectives equal their definition, and those of sentence-transformers and CLIP."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from unit.tasks.sentence_encoders import encoder_folder

import regard
from regard.data.batches import Batch, PackedColumn
from regard.training.objectives.contrastive import Contrastive, in_batch_loss
from regard.training.objectives.objective import Objective
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.config import Pooling


def column(rows):
    return PackedColumn(torch.tensor([token for row in rows for token in row]), BatchLayout.of([*map(len, rows)]))


def test_the_loss_is_the_mean_of_both_directions():
    logits = torch.randn(5, 5, dtype=torch.float64)
    expected = 0.0
    for i in range(5):
        expected -= logits[i].log_softmax(0)[i] / 2 + logits[:, i].log_softmax(0)[i] / 2
    loss = in_batch_loss(logits, training=False)
    assert loss.sum.item() == pytest.approx(expected.item(), rel=1e-12)
    assert loss.count == 5
    assert loss.correct == {"accuracy": sum(int(logits[i].argmax() == i) for i in range(5))}


def test_the_loss_is_that_of_clip():
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    logits = torch.randn(7, 7)
    loss = in_batch_loss(logits, training=True)
    assert (loss.sum / loss.count).item() == pytest.approx(image_text_contrastive_loss(logits).item(), rel=1e-6)


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.FIRST, Pooling.LAST, Pooling.MAX])
def test_texts_are_pooled_normalised_and_compared(tmp_path, pooling):
    network = regard.load(encoder_folder(tmp_path / "model"), precision="float64").network.eval()
    first, second = [[5, 9, 12], [7, 30], [11, 4, 6, 8]], [[5, 10], [8, 31, 3], [2, 2]]
    batch = Batch({"tokens": column(first), "pair": column(second)}, np.arange(2), 0, 0)
    objective = Contrastive(pooling=pooling, scale=13.0)
    assert isinstance(objective, Objective)

    def vector(row):
        hidden = network(torch.tensor([row])).hidden[0]
        choose = {Pooling.MEAN: hidden.mean(0), Pooling.FIRST: hidden[0], Pooling.LAST: hidden[-1],
                  Pooling.MAX: hidden.max(0).values}  # fmt: skip
        return normalize(choose[pooling], dim=0)

    logits = 13 * torch.stack([torch.stack([vector(a) @ vector(b) for b in second]) for a in first])
    expected = in_batch_loss(logits, training=False)
    loss = objective.loss(network, batch)
    assert loss.sum.item() == pytest.approx(expected.sum.item(), rel=1e-9)
    assert loss.correct == expected.correct


def test_gradients_reach_both_texts(tmp_path):
    network = regard.load(encoder_folder(tmp_path / "model")).network.train()
    batch = Batch({"tokens": column([[5, 9], [6, 7]]), "pair": column([[30, 31], [32, 33]])}, np.arange(2), 0, 0)
    Contrastive().loss(network, batch).sum.backward()
    gradient = network.embedding.tokens.weight.grad
    assert all(gradient[token].abs().sum() > 0 for token in (5, 9, 6, 7, 30, 31, 32, 33))
