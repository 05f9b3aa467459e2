"""The training loop. It receives everything it works with.

One optimizer step:

    for each batch of the accumulation:  loss = objective.loss(network, batch);  sum gradients, losses and counts
    gradients / count                    the loss is per token over the whole step, however it is split into batches
    clip, optimizer step, EMA            and at intervals: log, evaluate, save
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

from regard.checkpoint.model_folder import CheckpointError
from regard.data.batches import Batch
from regard.native.bf16 import bf16_available
from regard.training.modules.draw_scope import enter_scope
from regard.training.modules.fused_modules import fuse_modules
from regard.training.objectives.objective import Objective
from regard.training.optim.optimizer import Optimizers, freeze
from regard.training.optim.schedule import lr_factor
from regard.training.recipe.training_section import TrainingSection
from regard.training.run import divergence, retention, state
from regard.training.run.batch_stream import BatchStream, count_tokens, to_device
from regard.training.run.evaluation_monitor import EvaluationMonitor
from regard.training.run.reporter import Reporter
from regard.training.run.run_dir import RunDir
from regard.training.run.signals import catch_stop_signals
from regard.training.run.state import Checkpoint, RandomDraws, TrainingProgress
from regard.training.run.time_limit import TimeLimit

REMEDY = "Try a smaller lr, more warmup_steps or a smaller max_grad_norm; unchanged, the run would diverge again"
Evaluate = Callable[[], Mapping[str, float]]
"""Computes metrics on the validation data. They must contain the metric that `training.best_metric` names."""


@dataclass(kw_only=True)
class TrainingLoop:
    """Trains a network from its current progress to the end of the run."""

    network: Any
    objective: Objective
    batches: BatchStream
    settings: TrainingSection
    run_dir: RunDir
    seed: int
    model_dim: int
    save_model: Callable[[Any], None]
    """Writes the network to a model folder."""
    evaluate: Evaluate | None
    reporter: Reporter
    monitor: EvaluationMonitor = field(default_factory=EvaluationMonitor)
    """Shows the progress of `evaluate` and ends it at the time limit."""
    preparation_seconds: float = 0.0
    """How long the preparation of the run took, which is part of its time limit."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Identify the batches (`data`), the `objective`, the `tokenizer`, and the metric and data that select the best
    model (`best`). A checkpoint stores them; a resumed run compares them to detect what changed."""
    progress: TrainingProgress = field(default_factory=TrainingProgress)

    def __post_init__(self) -> None:
        freeze(self.network, self.settings.freeze)
        self.device = torch.device(self.settings.device)
        self.native_bf16 = self.settings.precision == "bfloat16" and self.device.type == "cpu" and bf16_available()
        fuse_modules(self.network, self.native_bf16)
        self.network.train()
        if self.settings.gradient_checkpointing:  # not every network has it
            self.network.set_gradient_checkpointing()
        matmul_dtype = torch.float32 if self.settings.precision == "float32" else torch.bfloat16
        self.optimizers = Optimizers(self.network, self.settings.optimizer, self.settings.layer_decay, matmul_dtype)
        trained = self.optimizers.parameters
        self.ema = {name: value.detach().clone() for name, value in trained.items()} if self.settings.ema_decay else {}
        self.last_saved_step = -1
        self.start_time = time.monotonic()
        self.time_limit, self.out_of_time = TimeLimit(self.settings), False
        self.lr_factor, self.num_tokens = 0.0, 0

    # -- steps

    def run(self) -> TrainingProgress:
        """Train to the last step, or until `patience` ends the run. Disk errors name the last good checkpoint.

        On SIGINT, SIGTERM or SIGHUP the loop finishes its optimizer step, saves a checkpoint and raises
        KeyboardInterrupt.
        """
        stream = self.batches.iter_from(self.progress.epoch, self.progress.batch)
        self.reporter.begin(self.progress.step, self.settings.steps, self.settings.minutes)
        self.start_time = time.monotonic() - self.progress.seconds - self.preparation_seconds
        try:
            self._estimate_evaluation_time()
            self.time_limit.first_step, self.time_limit.first_step_seconds = self.progress.step, self.elapsed
            with catch_stop_signals() as stop_requested:
                while not self.progress.finished:
                    self.run_step(stream)
                    if stop_requested() and not self.progress.finished:
                        self._save_and_interrupt()
        except OSError as error:
            raise OSError(f"step {self.progress.step}: {error}. {self._describe_last_checkpoint()}") from error
        finally:
            self.reporter.end()
        return self.progress

    def _save_and_interrupt(self) -> None:
        if self.last_saved_step != self.progress.step:
            self.save_checkpoint()
        self.reporter.log(f"stopped after step {self.progress.step}; continue with --resume")
        raise KeyboardInterrupt

    def run_step(self, stream: Iterator[Batch]) -> None:
        """Run one optimizer step, and log, evaluate and save if they are due after it."""
        progress, settings = self.progress, self.settings
        loss, count, grad_norm = self.update(stream)
        self._update_elapsed_time()
        is_last = self._is_at_end()
        if progress.step % settings.log_every == 0 or is_last:
            self._log_metrics(grad_norm)
        self._report_step(loss, count)
        is_due = progress.step % settings.evaluate_every == 0 and self.time_limit.allows_evaluation(progress.seconds)
        if is_due or is_last:
            self.evaluate_and_keep_best()
        progress.finished = is_last or self._is_finished()  # an evaluation that was quick gives no time back
        # Every new best model has its checkpoint, so that a run that is killed and resumed cannot keep a best model
        # of steps that it then computes differently.
        if progress.step % settings.save_every == 0 or progress.finished or progress.best_step == progress.step:
            self.save_checkpoint()

    def _is_finished(self) -> bool:
        """Whether the run is complete by its current settings: a resumed run may have been given more steps."""
        progress, settings = self.progress, self.settings
        return self._is_at_end() or (
            settings.patience is not None and progress.evaluations_since_best >= settings.patience
        )

    def _is_at_end(self) -> bool:
        """Whether all steps are done, or no time is left for another one."""
        progress, settings = self.progress, self.settings
        steps_done = settings.steps is not None and progress.step >= settings.steps
        self.out_of_time |= settings.minutes is not None and self.time_limit.is_over(progress.seconds)
        return steps_done or self.out_of_time

    def _report_step(self, loss: float, count: int) -> None:
        progress, limit = self.progress, self.time_limit
        expected_steps = limit.expected_steps(progress.step, progress.seconds)
        seconds_left = None
        if self.settings.minutes is not None and expected_steps != self.settings.steps:
            seconds_left = max(0.0, limit.seconds - progress.seconds)
        self.reporter.update(
            progress.step, expected_steps, loss, count, tokens=self.num_tokens, seconds_left=seconds_left
        )

    def _estimate_evaluation_time(self) -> None:
        """Estimate how long one evaluation takes, with a part of the data, if time is limited."""
        if self.settings.minutes is None or self.evaluate is None or self.progress.finished:
            return
        self.monitor.begin(trial=True)
        self.network.eval()
        with torch.no_grad():
            self.evaluate()
        self.network.train()
        self.time_limit.evaluation_seconds = self.monitor.seconds
        self.monitor.begin()
        estimate, limit = self.time_limit.evaluation_seconds, self.time_limit.seconds
        if estimate > limit / 3:
            self.reporter.log(
                f"one evaluation takes about {estimate:.0f} s of the limit of {limit:.0f} s, so it may not finish: use "
                "fewer validation lines, or more minutes"
            )

    def update(self, stream: Iterator[Batch]) -> tuple[float, int, float]:
        """Update the parameters once. Returns the loss per token, the number of tokens, and the gradient norm."""
        progress, batches = self.progress, []
        total, count, self.num_tokens = 0.0, 0, 0
        self.optimizers.zero_grad()
        for _ in range(self.settings.gradient_accumulation_steps):
            batches.append(next(stream))
            self.num_tokens += count_tokens(batches[-1])
            loss = self._loss(batches[-1])
            torch.autograd.backward(loss.sum)
            total, count = total + float(loss.sum.detach()), count + loss.count
        gradients = self.optimizers.gradients()
        torch._foreach_div_(gradients, float(max(1, count)))
        norm = torch.nn.utils.get_total_norm(gradients)
        if not math.isfinite(total) or not math.isfinite(float(norm)):
            raise divergence.DivergenceError(self._describe_nonfinite(batches))
        if self.settings.max_grad_norm:
            torch.nn.utils.clip_grads_with_norm_(self.optimizers.parameters.values(), self.settings.max_grad_norm, norm)
        expected_steps = self.time_limit.expected_steps(progress.step, progress.seconds)
        progress.step += 1
        shorter_warmup = self.time_limit.warmup_steps(expected_steps)
        self.lr_factor = lr_factor(
            self.settings.schedule, progress.step, expected_steps, self.model_dim, shorter_warmup
        )
        self.optimizers.step(self.lr_factor)
        self._update_ema()
        progress.epoch, progress.batch = batches[-1].epoch, batches[-1].step + 1
        progress.loss, progress.count = progress.loss + total, progress.count + count
        if not divergence.track_loss(progress, total / max(1, count)):
            raise divergence.DivergenceError(self._describe_divergence())
        return total / max(1, count), count, float(norm)

    @property
    def elapsed(self) -> float:
        """Seconds since the run started, without the time between a stop and a resume."""
        return time.monotonic() - self.start_time

    def _update_elapsed_time(self) -> None:
        if self.settings.minutes is not None:
            # A run that is at its end has no time left, however short its last evaluation was.
            used_up = self.time_limit.seconds if self.out_of_time else 0.0
            self.progress.seconds = max(self.elapsed, used_up)

    def _loss(self, batch: Batch) -> Any:
        if self.progress.random_draws is RandomDraws.BY_CALL:
            torch.manual_seed(state.batch_seed(self.seed, batch.epoch, batch.step))
        else:  # what a whole step shares, such as the layers that layer dropout skips
            torch.manual_seed(state.batch_seed(self.seed, 0, self.progress.step, "step"))
            batch = batch.with_random_keys(self.seed)
        with self._autocast():
            loss = self.objective.loss(self.network, to_device(batch, self.device))
        enter_scope(None)
        return loss

    def _loss_sum(self, batch: Batch) -> Tensor:
        return torch.as_tensor(self._loss(batch).sum)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.settings.precision == "float32" or self.native_bf16:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    @torch.no_grad()
    def _update_ema(self) -> None:
        """Move the EMA of the parameters towards the parameters."""
        if self.ema:
            current = [value.detach() for value in self.optimizers.parameters.values()]
            torch._foreach_lerp_(list(self.ema.values()), current, 1 - self.settings.ema_decay)

    def _describe_nonfinite(self, batches: list[Batch]) -> str:
        """Compute the batches again, and name the module where the first non-finite value appears."""
        origins = (divergence.locate_nonfinite(self.network, partial(self._loss_sum, batch)) for batch in batches)
        origin = next((origin for origin in origins if origin is not None), divergence.NOT_REPRODUCED)
        step = self.progress.step + 1
        remedy = f"{self._describe_last_checkpoint()} {REMEDY}"
        return f"step {step}: the loss or its gradient is not finite; {origin}. {remedy}"

    def _describe_divergence(self) -> str:
        """Describe a loss that has diverged. Checkpoints that were saved while it rose are marked as damaged."""
        progress, checkpoints = self.progress, state.list_checkpoints(self.run_dir.checkpoints)
        if retention.last_good_checkpoint(list(checkpoints), self.settings, progress):
            last_good = retention.last_good_step(progress)
            state.mark_damaged(path for step, path in checkpoints.items() if step > last_good)
        return (
            f"step {progress.step}: training diverged: the smoothed loss has risen to {progress.smoothed_loss:.3f} "
            f"from {progress.lowest_loss:.3f} at step {progress.lowest_loss_step}; the largest gradient is in "
            f"{divergence.largest_gradient(self.network)}. {self._describe_last_checkpoint()} {REMEDY}"
        )

    # -- metrics and evaluation

    def _log_metrics(self, grad_norm: float) -> None:
        progress = self.progress
        lr = self.settings.optimizer.lr * self.lr_factor
        loss = progress.loss / max(1, progress.count)
        self.run_dir.append_metrics(
            {"step": progress.step, "epoch": progress.epoch, "loss": loss, "lr": lr, "grad_norm": grad_norm}
        )
        progress.loss, progress.count = 0.0, 0

    def evaluate_and_keep_best(self) -> None:
        """Evaluate the network on the validation data, and save it if it is the best so far."""
        progress = self.progress
        with self.ema_parameters():
            value = self.run_evaluation({"step": progress.step, "epoch": progress.epoch}) if self.evaluate else None
            if value is not None:
                progress.metric_by_step[str(progress.step)] = value
                progress.evaluations_since_best += 1
            if self.monitor.timed_out and value is None and progress.best_step:
                return  # a model that was evaluated is better than one that was not
            if value is None or self.settings.is_better(value, progress.best_value):
                progress.best_value, progress.best_step, progress.evaluations_since_best = value, progress.step, 0
                self.run_dir.replace_best(self.save_model, {"step": progress.step}, value)

    def run_evaluation(self, info: Mapping[str, Any]) -> float | None:
        """Evaluate the network with its current parameters, log the metrics, and return the value of `best_metric`.

        None: the time limit ended the evaluation before this metric was computed.
        """
        assert self.evaluate is not None
        limited = self.settings.minutes is not None
        self.monitor.begin(deadline=self.start_time + self.time_limit.seconds if limited else None)
        self.network.eval()
        with torch.no_grad():
            metrics = self.evaluate()
        self.network.train()
        best_metric = self.settings.best_metric
        if self.monitor.timed_out:
            self.reporter.log("the time limit ended the evaluation: not all metrics were computed")
        else:
            self.time_limit.evaluation_seconds = self.monitor.seconds
        if best_metric not in metrics and self.monitor.timed_out:
            return None
        if best_metric not in metrics:
            raise ValueError(f"training.best_metric is {best_metric!r}; the evaluation gives {', '.join(metrics)}")
        self.run_dir.append_metrics({**info, **{f"valid_{name}": value for name, value in metrics.items()}})
        self.reporter.log_evaluation(info, metrics)
        return metrics[best_metric]

    @contextmanager
    def ema_parameters(self) -> Iterator[None]:
        """Use the EMA of the parameters inside the block, if there is one."""
        with swap_parameters(self.optimizers.parameters, self.ema):
            yield

    # -- checkpoints

    def save_checkpoint(self) -> None:
        """Save a checkpoint, and remove those that are no longer needed."""
        progress = self.progress
        progress.metrics_bytes = self.run_dir.metrics_size()
        self._update_elapsed_time()
        tensors = {f"parameter/{name}": value for name, value in self.network.named_parameters()}
        tensors |= {f"optimizer/{name}": value for name, value in self.optimizers.state_dict().items()}
        tensors |= {f"ema/{name}": value for name, value in self.ema.items()}
        folder = self.run_dir.checkpoints
        environment = {**state.environment(self.settings.device), **self.fingerprints}
        state.save_checkpoint(folder, progress, tensors, environment)
        self.run_dir.mark_saved()
        self.last_saved_step = progress.step
        steps = list(state.list_checkpoints(folder))
        state.prune_checkpoints(folder, retention.checkpoints_to_keep(steps, self.settings, progress))

    @torch.no_grad()
    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint. If the data changed, a new epoch starts; if the metric did, the best is reset."""
        changed = {
            name for name, value in self.fingerprints.items() if checkpoint.environment.get(name, value) != value
        }
        if "tokenizer" in changed:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.progress.step} was trained with a different tokenizer. "
                f"{self.run_dir.best} may contain it: set tokenizer.load={self.run_dir.best}"
            )
        tensors = checkpoint.tensors
        for name, value in self.network.named_parameters():
            saved = tensors.get(f"parameter/{name}")
            if saved is None or saved.shape != value.shape:
                shape = "none" if saved is None else f"shape {list(saved.shape)}"
                raise CheckpointError(
                    f"the checkpoint of step {checkpoint.progress.step} does not fit the network: {name} has shape "
                    f"{list(value.shape)}, the checkpoint has {shape}. Restore [network] and [tokenizer], or choose "
                    "another --output"
                )
            value.copy_(saved)
        for name, value in self.ema.items():  # an EMA that is new starts with the parameters
            value.copy_(tensors.get(f"ema/{name}", tensors[f"parameter/{name}"]))
        prefix = "optimizer/"
        self.optimizers.load_state_dict(
            {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
        )
        self.run_dir.truncate_metrics(checkpoint.progress.metrics_bytes)
        self.progress = progress = checkpoint.progress
        self.last_saved_step = progress.step
        if progress.batch and "data" in changed:
            self.reporter.log("data or batch size changed: starting a new epoch")
            progress.epoch, progress.batch = progress.epoch + 1, 0
        if changed & {"data", "objective"}:  # the new losses cannot be compared with the old ones
            progress.smoothed_loss = progress.lowest_loss = None
        if "best" in changed:
            self.reporter.log("best_metric or validation data changed: the best model is selected again")
            progress.best_value, progress.evaluations_since_best, progress.metric_by_step = None, 0, {}
        elif progress.best_step and not self.run_dir.best.exists():
            self.reporter.log(f"{self.run_dir.best} is missing: the best model is selected again")
            progress.best_value, progress.evaluations_since_best = None, 0
        elif (
            progress.best_value is not None
            and (info := self.run_dir.best_info()).get("step", math.inf) <= progress.step
        ):
            # The run may have ended with an averaged model, which is evaluated after the last checkpoint.
            progress.best_value = info.get("value", progress.best_value)
        progress.finished = self._is_finished()

    def _describe_last_checkpoint(self) -> str:
        steps = list(state.list_checkpoints(self.run_dir.checkpoints))
        if not steps:
            return "No checkpoint was saved yet: start the run again."
        return f"Last good checkpoint: step {steps[-1]} in {self.run_dir.checkpoints}; continue with --resume."


@contextmanager
def swap_parameters(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace the values of parameters inside the block."""
    original = {name: parameters[name].data for name in values}
    try:
        for name, value in values.items():
            parameters[name].data = value
        yield
    finally:
        for name, data in original.items():
            parameters[name].data = data
