"""A small training loop with batches that the test chooses."""

import torch
from unit.training.tiny_data import batch, ids, random_rows

from regard.families.transformer import transformer_2017
from regard.training.objectives.translate import Seq2SeqLM
from regard.training.optim.optimizer import AdamWConfig
from regard.training.optim.schedule import ConstantSchedule
from regard.training.recipe.training_section import TrainingSection
from regard.training.run.loop import TrainingLoop
from regard.training.run.reporter import LineReporter
from regard.training.run.run_dir import RunDir
from regard.transformer.network import build


class Fixed:
    """A fixed list of batches, repeated every epoch."""

    def __init__(self, *batches):
        self.batches = batches

    def iter_from(self, epoch, step):
        while True:
            for number in range(step, len(self.batches)):
                source, target = self.batches[number]
                yield batch(epoch, number, source=ids(*source), target=ids(*target))
            epoch, step = epoch + 1, 0


def pairs(count, seed=0):
    """Pairs of sequences of many lengths."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (2, count), generator=draw).tolist()
    return random_rows(lengths[0], 20, seed), random_rows(lengths[1], 20, seed + 1)


def part(pair, *indices):
    return tuple([rows[index] for index in indices] for rows in pair)


class Quiet(LineReporter):
    """Collects lines instead of printing them."""

    def print_line(self, line):
        self.lines = [*getattr(self, "lines", []), line]


def loop(folder, batches, *, dropout=0.0, dtype=torch.float64, evaluate=None, seed=1, **plan):
    sizes = dict(vocabulary=20, layers=(1, 1), model_dim=8, heads=2, inner_dim=12, dropout=dropout)
    network = build(transformer_2017(**sizes), seed=3).to(dtype)
    place = RunDir(folder)
    place.open()
    plan = {
        "steps": 6,
        "schedule": ConstantSchedule(),
        "optimizer": AdamWConfig(lr=1e-2),
        "max_grad_norm": 0.0,
        "log_every": 2,
        **plan,
    }
    return TrainingLoop(
        network=network,
        objective=Seq2SeqLM(decoder_start=2, label_smoothing=0.1),
        batches=batches,
        settings=TrainingSection(**plan),
        run_dir=place,
        seed=seed,
        model_dim=8,
        save_model=lambda folder: (folder / "weights").write_bytes(
            bytes(str(network.head.output.weight.sum()), "ascii")
        ),
        evaluate=evaluate,
        reporter=Quiet(None),
    )


def parameters(run):
    return {name: value.detach().clone() for name, value in run.network.named_parameters()}


def largest_difference(one, other):
    """The largest difference, relative to the largest value."""
    scale = max(float(value.abs().max()) for value in one.values())
    return max(float((one[name] - other[name]).abs().max()) for name in one) / scale


def gradients(run):
    return {name: value.grad.clone() for name, value in run.network.named_parameters() if value.grad is not None}
