"""A small loop with batches that a test decides."""

import torch
from unit.training.tiny_data import batch, ids, random_rows

from regard.families.transformer import transformer_2017
from regard.training.objectives.translate import Translate
from regard.training.optim.optimizer import AdamW
from regard.training.optim.schedule import Constant
from regard.training.recipe.training_section import Training
from regard.training.run.loop import Loop
from regard.training.run.progress import Lines
from regard.training.run.run_dir import Folder
from regard.transformer.network import build


class Fixed:
    """Batches that come round again, cut as they are given."""

    def __init__(self, *batches):
        self.batches = batches

    def at(self, epoch, step):
        while True:
            for number in range(step, len(self.batches)):
                source, target = self.batches[number]
                yield batch(epoch, number, source=ids(*source), target=ids(*target))
            epoch, step = epoch + 1, 0


def pairs(count, seed=0):
    """Pairs of rows of many lengths."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (2, count), generator=draw).tolist()
    return random_rows(lengths[0], 20, seed), random_rows(lengths[1], 20, seed + 1)


def part(given, *places):
    return tuple([rows[place] for place in places] for rows in given)


class Quiet(Lines):
    """Says nothing."""

    def write(self, line):
        self.said = [*getattr(self, "said", []), line]


def loop(folder, batches, *, dropout=0.0, dtype=torch.float64, evaluate=None, seed=1, **plan):
    sizes = dict(vocabulary=20, layers=(1, 1), model_dim=8, heads=2, inner_dim=12, dropout=dropout)
    network = build(transformer_2017(**sizes), seed=3).to(dtype)
    place = Folder(folder)
    place.open()
    plan = {"steps": 6, "schedule": Constant(), "optimizer": AdamW(rate=1e-2), "clip": 0.0, "report_every": 2, **plan}
    return Loop(
        network=network,
        objective=Translate(start=2, smoothing=0.1),
        batches=batches,
        plan=Training(**plan),
        folder=place,
        seed=seed,
        model_dim=8,
        write=lambda folder: (folder / "weights").write_bytes(bytes(str(network.head.output.weight.sum()), "ascii")),
        evaluate=evaluate,
        reporter=Quiet(None),
    )


def parameters(run):
    return {name: value.detach().clone() for name, value in run.network.named_parameters()}


def largest_difference(one, other):
    """As a share of the largest value."""
    scale = max(float(value.abs().max()) for value in one.values())
    return max(float((one[name] - other[name]).abs().max()) for name in one) / scale


def gradients(run):
    return {name: value.grad.clone() for name, value in run.network.named_parameters() if value.grad is not None}
