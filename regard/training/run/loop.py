"""The loop: batches in, a trained network out. Everything it works with is handed to it.

One update:

    for each of its batches:    loss, count = objective(network, batch);  add up gradients, losses, counts
    gradients / count           the loss is per token over the whole update, however it was cut into batches
    clip, step, average         and now and then: report, evaluate, save
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint.files import CheckpointError
from regard.data.batches import Batch
from regard.native.bf16 import half
from regard.training.modules.fused_modules import quicken
from regard.training.objectives.objective import Objective
from regard.training.optim.optimizer import Optimizers, freeze
from regard.training.optim.schedule import factor
from regard.training.recipe.training_section import Training
from regard.training.run import divergence, retention, state
from regard.training.run.batch_stream import Batches, moved
from regard.training.run.progress import Reporter
from regard.training.run.run_dir import Folder
from regard.training.run.signals import asked_to_stop
from regard.training.run.state import Progress, State

REMEDY = "A smaller rate, a longer warm-up or a smaller `clip` may help; without a change it would happen again"
Evaluate = Callable[[], Mapping[str, float]]
"""Measures the network on the validation data; it must hold `loss`, or whatever `training.best` names."""


@dataclass(kw_only=True)
class Loop:
    """A run of training, from wherever its progress stands to its end."""

    network: Any
    objective: Objective
    batches: Batches
    plan: Training
    folder: Folder
    seed: int
    model_dim: int
    write: Callable[[Any], None]
    """Writes the network as a model folder."""
    evaluate: Evaluate | None
    reporter: Reporter
    belongs: Mapping[str, str] = field(default_factory=dict)
    """Names for exactly these batches (`data`), this `objective`, this `tokenizer`, and what the best network is known
    by (`best`). Another name says that a run that goes on has another than it had."""
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        freeze(self.network, self.plan.freeze)
        self.device = torch.device(self.plan.device)
        self.in_half = self.plan.precision == "bfloat16" and self.device.type == "cpu" and half()
        quicken(self.network, self.in_half)
        self.network.train()
        self.network.recompute(self.plan.recompute)
        products = torch.float32 if self.plan.precision == "float32" else torch.bfloat16
        self.optimizers = Optimizers(self.network, self.plan.optimizer, self.plan.layer_decay, products)
        trained = self.optimizers.parameters
        self.ema = {name: value.detach().clone() for name, value in trained.items()} if self.plan.ema else {}
        self.saved_at = -1
        self.began = time.monotonic()
        self.height = 0.0

    # -- the way through

    def run(self) -> Progress:
        """Train to the last step, or until patience ends. What the disk refuses is said, with the last good state.

        Asked to stop (Ctrl-C), it finishes its update, writes its state, and raises KeyboardInterrupt.
        """
        stream = self.batches.at(self.progress.epoch, self.progress.batch)
        self.reporter.begin(self.progress.step, self.plan.steps)
        self.began = time.monotonic() - self.progress.seconds
        try:
            with asked_to_stop() as asked:
                while not self.progress.finished:
                    self.advance(stream)
                    if asked() and not self.progress.finished:
                        self._stop()
        except OSError as error:
            raise OSError(f"step {self.progress.step}: {error}. {self._last_good()}") from error
        finally:
            self.reporter.end()
        return self.progress

    def _stop(self) -> None:
        if self.saved_at != self.progress.step:
            self.save()
        self.reporter.say(f"stopped after step {self.progress.step}: --resume goes on from there")
        raise KeyboardInterrupt

    def advance(self, stream: Iterator[Batch]) -> None:
        """One update, and whatever is due after it."""
        now, plan = self.progress, self.plan
        loss, count, norm = self.update(stream)
        self._look_at_the_clock()
        last = plan.ended(now.step, now.seconds)
        if now.step % plan.report_every == 0 or last:
            self._report(norm)
        self.reporter.update(now.step, plan.expected(now.step, now.seconds), loss, count)
        if now.step % plan.evaluate_every == 0 or last:
            self.judge()
        now.finished = self._ended()
        # With a new best network comes its state, so that `best` is never of a way that the run did not go.
        if now.step % plan.save_every == 0 or now.finished or now.best_step == now.step:
            self.save()

    def _ended(self) -> bool:
        """Whether all is done, by the plan as it is now: a run that goes on may have been given more steps."""
        now, plan = self.progress, self.plan
        return plan.ended(now.step, now.seconds) or (plan.patience is not None and now.waited >= plan.patience)

    def update(self, stream: Iterator[Batch]) -> tuple[float, int, float]:
        """Change the parameters once. Returns the loss of each token, their count, and the length of the gradient."""
        now, used = self.progress, []
        total, count = 0.0, 0
        self.optimizers.clear()
        for _ in range(self.plan.accumulate):
            used.append(next(stream))
            loss = self._loss(used[-1])
            torch.autograd.backward(loss.sum)
            total, count = total + float(loss.sum.detach()), count + loss.count
        gradients = self.optimizers.gradients()
        torch._foreach_div_(gradients, float(max(1, count)))
        norm = torch.nn.utils.get_total_norm(gradients)
        if not math.isfinite(total) or not math.isfinite(float(norm)):
            raise divergence.DivergenceError(self._diverged(used))
        if self.plan.clip:
            torch.nn.utils.clip_grads_with_norm_(self.optimizers.parameters.values(), self.plan.clip, norm)
        steps = self.plan.expected(now.step, now.seconds)
        now.step += 1
        self.height = factor(self.plan.schedule, now.step, steps, self.model_dim)
        self.optimizers.step(self.height)
        self._follow()
        now.epoch, now.batch = used[-1].epoch, used[-1].step + 1
        now.loss, now.count = now.loss + total, now.count + count
        if not divergence.observe(now, total / max(1, count)):
            raise divergence.DivergenceError(self._risen())
        return total / max(1, count), count, float(norm)

    def _look_at_the_clock(self) -> None:
        if self.plan.minutes is not None:
            self.progress.seconds = time.monotonic() - self.began

    def _loss(self, batch: Batch) -> Any:
        torch.manual_seed(state.seed_of(self.seed, batch.epoch, batch.step))
        with self._precision():
            return self.objective.loss(self.network, moved(batch, self.device))

    def _sum(self, batch: Batch) -> Tensor:
        return torch.as_tensor(self._loss(batch).sum)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.plan.precision == "float32" or self.in_half:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the average of the parameters towards the parameters."""
        if self.ema:
            fresh = [value.detach() for value in self.optimizers.parameters.values()]
            torch._foreach_lerp_(list(self.ema.values()), fresh, 1 - self.plan.ema)

    def _diverged(self, used: list[Batch]) -> str:
        began = "it does not happen again when the same batches are computed alone"
        for batch in used:
            began = divergence.where(self.network, partial(self._sum, batch))
            if not began.startswith("it does not"):
                break
        step = self.progress.step + 1
        return f"step {step}: the loss or its gradient is not finite; {began}. {self._last_good()} {REMEDY}"

    def _risen(self) -> str:
        """What to say of a loss that has left all bounds. States that were written on its way up are put aside."""
        now, there = self.progress, state.saved(self.folder.states)
        if retention.good(list(there), self.plan, now):
            state.put_aside(there[step] for step in there if step > retention.good_until(now))
        return (
            f"step {now.step}: the loss has risen to {now.smooth:.3f} from {now.lowest:.3f} at step {now.lowest_step}; "
            f"the largest gradient is in {divergence.largest(self.network)}. {self._last_good()} {REMEDY}"
        )

    # -- now and then

    def _report(self, norm: float) -> None:
        now = self.progress
        rate = self.plan.optimizer.rate * self.height
        mean = now.loss / max(1, now.count)
        self.folder.add({"step": now.step, "epoch": now.epoch, "loss": mean, "rate": rate, "gradient": norm})
        now.loss, now.count = 0.0, 0

    def judge(self) -> None:
        """Measure the network on the validation data, and keep it if it is the best so far."""
        now = self.progress
        with self.averaged():
            value = self.measure({"step": now.step, "epoch": now.epoch}) if self.evaluate else None
            if value is not None:
                now.scores[str(now.step)] = value
                now.waited += 1
            if value is None or self.plan.better(value, now.best):
                now.best, now.best_step, now.waited = value, now.step, 0
                self.folder.replace_best(self.write, {"step": now.step}, value)

    def measure(self, about: Mapping[str, Any]) -> float:
        """Evaluate the network as it is, write down what was found, and return the measure that decides."""
        assert self.evaluate is not None
        self.network.eval()
        with torch.no_grad():
            found = self.evaluate()
        self.network.train()
        if self.plan.best not in found:
            raise ValueError(f"training.best is {self.plan.best!r}; the evaluation gives {', '.join(found)}")
        self.folder.add({**about, **{f"valid_{name}": value for name, value in found.items()}})
        self.reporter.evaluated(about, found)
        return found[self.plan.best]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The network with the moving average of its parameters, where there is one."""
        with exchanged(self.optimizers.parameters, self.ema):
            yield

    # -- states

    def save(self) -> None:
        """Write the state, and remove those that are needed no more."""
        now = self.progress
        now.metrics = self.folder.measured()
        self._look_at_the_clock()
        tensors = {f"parameter/{name}": value for name, value in self.network.named_parameters()}
        tensors |= {f"optimizer/{name}": value for name, value in self.optimizers.state().items()}
        tensors |= {f"ema/{name}": value for name, value in self.ema.items()}
        state.save(self.folder.states, now, tensors, {**state.machine(self.plan.device), **self.belongs})
        self.saved_at = now.step
        state.prune(self.folder.states, retention.wanted(list(state.saved(self.folder.states)), self.plan, now))

    @torch.no_grad()
    def restore(self, found: State) -> None:
        """Go on from a state. What is not as it was begins anew: the way through the data, the search for the best."""
        changed = {name for name, value in self.belongs.items() if found.machine.get(name, value) != value}
        if "tokenizer" in changed:
            raise CheckpointError(
                f"the state of step {found.progress.step} is of a network that learnt with another tokenizer, whose "
                f"numbers mean other words. {self.folder.best} may still have it: say tokenizer.load={self.folder.best}"
            )
        tensors = found.tensors
        for name, value in self.network.named_parameters():
            kept = tensors.get(f"parameter/{name}")
            if kept is None or kept.shape != value.shape:
                was = "none" if kept is None else f"one of {list(kept.shape)}"
                raise CheckpointError(
                    f"the state of step {found.progress.step} is of another network: it has {was} for {name} of "
                    f"{list(value.shape)}. Give [network] and [tokenizer] as they were, or choose another folder"
                )
            value.copy_(kept)
        for name, value in self.ema.items():  # one that is new begins with the parameters
            value.copy_(tensors.get(f"ema/{name}", tensors[f"parameter/{name}"]))
        start = "optimizer/"
        self.optimizers.restore({name.removeprefix(start): tensors[name] for name in tensors if name.startswith(start)})
        self.folder.rewind(found.progress.metrics)
        self.progress = now = found.progress
        self.saved_at = now.step
        if now.batch and "data" in changed:
            self.reporter.say("the data or the size of the batches is not what it was: it is begun once more")
            now.epoch, now.batch = now.epoch + 1, 0
        if changed & {"data", "objective"}:  # other losses: nothing can be said to have risen
            now.smooth = now.lowest = None
        if "best" in changed:
            self.reporter.say("what the best network is known by is not what it was: it is looked for anew")
            now.best, now.waited, now.scores = None, 0, {}
        elif now.best_step and not self.folder.best.exists():
            self.reporter.say(f"{self.folder.best} is gone: the best network is looked for anew")
            now.best, now.waited = None, 0
        elif now.best is not None and (which := self.folder.which()).get("step", math.inf) <= now.step:
            now.best = which.get("value", now.best)  # at its end the run may have found a mean, which no state knows of
        now.finished = self._ended()

    def _last_good(self) -> str:
        there = list(state.saved(self.folder.states))
        if not there:
            return "No state was written yet: the run can only begin again."
        return f"The last good state is of step {there[-1]}, in {self.folder.states}: --resume goes on from it."


@contextmanager
def exchanged(parameters: Mapping[str, nn.Parameter], others: Mapping[str, Tensor]) -> Iterator[None]:
    """Other values in the place of parameters, for a while."""
    own = {name: parameters[name].data for name in others}
    try:
        for name, value in others.items():
            parameters[name].data = value
        yield
    finally:
        for name, data in own.items():
            parameters[name].data = data
