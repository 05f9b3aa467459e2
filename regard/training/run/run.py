"""Start or resume a run: build everything from the recipe, train, and save the best model."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.checkpoint.model_folder import GENERATION_CONFIG_FILE, Companions, ModelFolder, ModelInfo
from regard.checkpoint.report import LoadReport
from regard.checkpoint.save import save
from regard.checkpoint.sentence_folder import SentenceEncoder, sentence_encoder_files
from regard.data.batches import Batches
from regard.data.image_processor import CONFIG_FILE as PROCESSOR_FILE
from regard.data.image_processor import ImageProcessor, default_processor, processor_file, read_image_processor
from regard.files import atomic_write, format_json, read_text
from regard.native.memory import limit_onednn_cache, retain_freed_memory
from regard.threads import warn_if_torch_was_first
from regard.tokenization.tokenizer import Tokenizer
from regard.training.objectives.contrastive import Contrastive
from regard.training.objectives.factory import build_objective, decoder_start_token
from regard.training.recipe import schema, toml
from regard.training.recipe.data_pipeline import build_tokenizer, prepare_data, read_labels
from regard.training.recipe.embedding_vectors import initialize_embeddings
from regard.training.recipe.legacy_keys import upgrade
from regard.training.recipe.network_factory import NetworkRequirements, build_network, num_outputs
from regard.training.recipe.objective_section import (
    AnswerContinuationConfig,
    ContrastiveConfig,
    GenerativeAnswerConfig,
    Seq2SeqLMConfig,
)
from regard.training.recipe.preflight import resolve_device
from regard.training.recipe.schema import Recipe, RecipeError
from regard.training.recipe.training_section import TrainingSection
from regard.training.run import checkpoint_averaging, retention, state, tensorboard
from regard.training.run.evaluation_monitor import EvaluationMonitor
from regard.training.run.loop import TrainingLoop, swap_parameters
from regard.training.run.reporter import Reporter, make_reporter
from regard.training.run.run_dir import RunDir
from regard.training.run.validation import validate
from regard.transformer.config import Pooling
from regard.transformer.interface import Reads
from regard.transformer.text_embedder import TextEmbedder

ComputeMetrics = Callable[["TrainedModel"], Mapping[str, float]]
"""Computes the metrics of the task on the validation data: BLEU, F1."""
SampleOutputs = Callable[["TrainedModel"], Sequence[str]]
"""Returns a few outputs of the model for the log."""


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A network with everything that is saved in its model folder."""

    recipe: Recipe
    network: Any
    tokenizer: Any
    """The tokenizer; None for a network that reads images only."""
    labels: tuple[str, ...]
    decoder_start: int
    report: LoadReport | None
    valid_batches: Batches | None
    """The encoded validation data."""
    processor: ImageProcessor | None = None
    """How images become pixels, for a network that reads them."""
    monitor: EvaluationMonitor = field(default_factory=EvaluationMonitor)
    """Receives the progress of an evaluation."""
    info: ModelInfo = field(default_factory=ModelInfo)
    """What regard.json holds besides task, labels and recipe. The evaluation adds what it fits: a temperature."""

    def save(self, folder: Path) -> None:
        """Write a model folder for `regard.load`."""
        files = {} if self.tokenizer is None else self._tokenizer_files(self.tokenizer)
        if self.processor is not None:
            files[PROCESSOR_FILE] = format_json(processor_file(self.processor)).encode()
        if self.sentence_encoder is not None:
            files |= sentence_encoder_files(self.sentence_encoder, self.network.model_dim)
        info = ModelInfo(task=self.recipe.task.name, **self.info, recipe=portable_values(self.recipe))
        if self.labels:
            info["labels"] = list(self.labels)
        origin = self.report.origin if self.report else None
        save(self.network, folder, origin=origin, companions=Companions(files, info))

    @property
    def sentence_encoder(self) -> SentenceEncoder | None:
        """Pooling and maximum length of a network that is trained to embed texts."""
        if not isinstance(self.recipe.objective, ContrastiveConfig):
            return None
        design = Contrastive(pooling=Pooling(self.recipe.objective.pooling)).embedding
        lengths = [length for length in (self.recipe.data.max_length, self.network.max_length) if length is not None]
        return SentenceEncoder(embedder=TextEmbedder(design), max_length=min(lengths, default=None))

    def _tokenizer_files(self, tokenizer: Tokenizer) -> dict[str, bytes]:
        """Return the tokenizer's files and generation_config.json with its special tokens."""
        special = tokenizer.target.special_ids
        ids = {"bos_token_id": special.bos, "eos_token_id": special.eos, "pad_token_id": special.pad}
        if self.network.reads is Reads.SOURCE_AND_TARGET:
            ids["decoder_start_token_id"] = self.decoder_start
        generation_config = format_json({key: value for key, value in ids.items() if value is not None})
        return {**tokenizer.folder_files(), GENERATION_CONFIG_FILE: generation_config.encode()}


def portable_values(recipe: Recipe) -> dict[str, Any]:
    """Return the values of a recipe with the names of files and folders instead of their paths.

    A model folder is given to others: it should not tell where its maker keeps files.
    """
    values = recipe.model_dump(exclude_none=True)
    for split in ("train", "valid", "test"):
        values["data"][split] = [Path(path).name for path in values["data"].get(split, ())]
    distillation = values["objective"].get("distillation") or {}
    for section, key in (
        (values, "output"),
        (values["tokenizer"], "load"),
        (values["network"], "load"),
        (distillation, "teacher"),
    ):
        if key in section:
            section[key] = Path(section[key]).name
    return values


def run_training(
    recipe: Recipe,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    compute_metrics: ComputeMetrics | None = None,
    sample_outputs: SampleOutputs | None = None,
    report: Reporter | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Path:
    """Train the model of a recipe in the run directory `output`, and return the folder of the best model.

    The recipe was checked (`check_recipe`). With `resume`, a stopped run continues from its last checkpoint, and gives
    bit for bit the result of a run that was not stopped. A directory that holds other files of these names is refused;
    `overwrite` deletes an earlier run, once nothing can reject the recipe any more. `overrides` are the values that
    differ from the recipe's file; they are recorded, so that a resumed run has them too.
    """
    start_time = time.monotonic()
    run_dir = RunDir(output)
    run_dir.check(resume=resume, overwrite=overwrite)
    warn_if_torch_was_first()
    retain_freed_memory()
    limit_onednn_cache()
    with _num_threads(recipe.training.threads), run_dir.lock():
        run_dir.check(resume=resume, overwrite=overwrite)  # again: another process may have started a run meanwhile
        run_dir.open()
        reporter = report or make_reporter(run_dir)
        for line in _recipe_changes(run_dir, recipe):
            reporter.log(line)
        loop = build_loop(recipe, run_dir, reporter, compute_metrics, sample_outputs, resuming=resume)
        loop.preparation_seconds = time.monotonic() - start_time
        if overwrite:
            run_dir.clear()
        if resume:
            _resume(loop, run_dir, reporter.log)
        else:
            run_dir.truncate_metrics(0)
        with atomic_write(run_dir.recipe) as temporary:  # only now, when nothing can reject the recipe any more
            temporary.write_text(schema.recipe_to_toml(recipe), encoding="utf-8")
        run_dir.write_overrides(overrides or {})
        with tensorboard.write_events(run_dir) if recipe.training.tensorboard else nullcontext():
            if not loop.progress.finished:
                loop.run()
            try:
                best = _average_and_finish(loop)
            finally:
                reporter.end()
    reporter.log(f"done: the best model ({best}) is in {run_dir.best}")
    return run_dir.best


def build_loop(
    recipe: Recipe,
    run_dir: RunDir,
    reporter: Reporter,
    compute_metrics: ComputeMetrics | None = None,
    sample_outputs: SampleOutputs | None = None,
    *,
    resuming: bool = False,
) -> TrainingLoop:
    """Build the tokenizer, network, objective and data of a recipe, and the loop that trains with them."""
    settings = supported_precision(recipe.training, reporter.log)
    labels = read_labels(recipe)
    has_checkpoint = bool(state.list_checkpoints(run_dir.checkpoints))
    tokenizer = build_tokenizer(recipe, run_dir.cache / "tokenizer", resuming=resuming and has_checkpoint)
    network, report = build_network(
        recipe, NetworkRequirements.from_tokenizer(tokenizer, num_outputs(recipe, len(labels)))
    )
    vectors = getattr(recipe.network, "embeddings", None)
    if vectors is not None and tokenizer is not None and not has_checkpoint:  # a checkpoint has the embeddings
        for line in initialize_embeddings(network, tokenizer, vectors, recipe.seed):
            reporter.log(line)
    published = _published_generation_config(recipe, report)
    decoder_start = 0 if tokenizer is None else decoder_start_token(tokenizer, published)
    processor = _image_processor(recipe, network)
    max_length = network.max_length
    objective = build_objective(
        recipe.objective, tokenizer, decoder_start, labels, settings.device, max_length, processor
    )
    data = prepare_data(recipe, tokenizer, labels, max_length, run_dir.cache, processor)
    for line in data.messages:
        reporter.log(line)
    network.to(settings.device)
    settings = _resolve_epochs(settings, data.train)
    warn_about_warmup(settings, reporter.log)
    monitor = EvaluationMonitor(reporter.show_evaluation)
    trained = TrainedModel(
        recipe=recipe,
        network=network,
        tokenizer=tokenizer,
        labels=labels,
        decoder_start=decoder_start,
        report=report,
        valid_batches=data.valid,
        processor=processor,
        monitor=monitor,
        info=model_info(recipe),
    )

    def evaluate() -> Mapping[str, float]:
        assert data.valid is not None
        metrics: dict[str, float] = {}
        with monitor.stage("loss"):
            draws = loop.progress.random_draws
            metrics |= validate(network, objective, data.valid, settings.device, data.valid_size, monitor, draws)
        if compute_metrics:
            with monitor.stage("task metrics"):
                metrics |= compute_metrics(trained)
        if sample_outputs and not monitor.trial and not monitor.timed_out:
            for line in sample_outputs(trained):
                reporter.log(line)
        return metrics

    loop = TrainingLoop(
        network=network,
        objective=objective,
        batches=data.train,
        settings=settings,
        run_dir=run_dir,
        seed=recipe.seed,
        model_dim=network.model_dim,
        save_model=trained.save,
        evaluate=evaluate if data.valid else None,
        reporter=reporter,
        monitor=monitor,
        fingerprints={
            "data": data.train.fingerprint,
            "objective": json.dumps(recipe.objective.model_dump(mode="json"), sort_keys=True),
            "tokenizer": "" if tokenizer is None else tokenizer.fingerprint(),
            "best": f"{settings.best_metric} on {data.valid.fingerprint if data.valid else 'nothing'}",
        },
    )
    return loop


def model_info(recipe: Recipe) -> ModelInfo:
    """Return what a trained model needs to know of its objective."""
    objective = recipe.objective
    if isinstance(objective, Seq2SeqLMConfig):
        return {"prompts": {recipe.task.name: objective.prefix}} if objective.prefix else {}
    if isinstance(objective, GenerativeAnswerConfig | AnswerContinuationConfig):
        return {"answer_format": {"input": objective.format, "no_answer": objective.no_answer}}
    match objective.kind:
        case "classify":
            return {"problem": "single_label"}
        case "multi_label" | "regression":
            return {"problem": objective.kind}
    return {}


def _image_processor(recipe: Recipe, network: Any) -> ImageProcessor | None:
    """Return the processor of a pretrained network, or the usual one; None for networks that read no images."""
    if network.reads not in (Reads.IMAGE, Reads.TEXT_AND_IMAGE):
        return None
    loads = isinstance(recipe.network, schema.PretrainedNetworkSection)
    found = read_image_processor(recipe.network.load) if loads else None  # type: ignore[union-attr]
    return found or default_processor(network)


def _published_generation_config(recipe: Recipe, report: LoadReport | None) -> Mapping[str, Any]:
    """Return the generation config of a published network; older folders have its keys in their config.json."""
    if not isinstance(recipe.network, schema.PretrainedNetworkSection) or report is None or report.origin is None:
        return {}
    values = ModelFolder(recipe.network.load).generation_config
    return {**report.origin.config, **{key: value for key, value in values.items() if value is not None}}


def _resolve_epochs(settings: TrainingSection, batches: Batches) -> TrainingSection:
    """Return the settings with the number of optimizer steps that `epochs` stands for."""
    if settings.epochs is None:
        return settings
    steps = -(-batches.total_steps(settings.epochs) // settings.gradient_accumulation_steps)
    return settings.model_copy(update={"steps": max(1, steps)})


def warn_about_warmup(settings: TrainingSection, log: Callable[[str], None]) -> None:
    """Log a warning if most steps of a run are warm-up."""
    warmup = settings.schedule.warmup_steps
    if settings.steps is not None and settings.minutes is None and 2 * warmup > settings.steps:
        log(
            f"the warm-up of the learning rate takes {warmup} of {settings.steps} steps: set "
            f"training.schedule.warmup_steps={max(1, settings.steps // 10)}"
        )


def supported_precision(settings: TrainingSection, log: Callable[[str], None]) -> TrainingSection:
    """Return the settings, with float32 instead of bfloat16 if the device has no bfloat16 instructions."""
    if settings.precision == "float32" or has_bfloat16(resolve_device(settings.device)):
        return settings
    log("no native bfloat16 on this machine: using float32, which is faster here")
    return settings.model_copy(update={"precision": "float32"})


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device has bfloat16 instructions."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    if device.type == "cpu":
        if platform.machine() in ("x86_64", "AMD64"):  # oneDNN also emulates bfloat16, which is slower than float32
            return torch.cpu._is_avx512_bf16_supported()
        has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False


def _recipe_changes(run_dir: RunDir, recipe: Recipe) -> Iterator[str]:
    """Describe how the recipe differs from the one that the run started with."""
    if not run_dir.recipe.exists():
        return
    try:
        values, _ = upgrade(toml.parse(read_text(run_dir.recipe)))
    except ValueError as error:
        yield f"cannot read {run_dir.recipe}, so changes of the recipe cannot be listed ({error})"
        return
    old, new = toml.flatten(_with_defaults(values, run_dir, recipe)), toml.flatten(schema.recipe_to_toml(recipe))
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if changed:
        yield "the recipe changed since the run started; the result will differ from the original run:"
    for key in changed:
        yield f"  {key}: {old.get(key, 'unset')} → {new.get(key, 'unset')}"


def _with_defaults(values: Mapping[str, Any], run_dir: RunDir, recipe: Recipe) -> str:
    """Return a recorded recipe as TOML, with the defaults of keys that are newer than the run."""
    try:
        recorded = schema.parse_recipe(values, run_dir.recipe, tasks={recipe.task.name: recipe.task})
    except RecipeError:
        return toml.dumps(values)
    return schema.recipe_to_toml(recorded)


def _resume(loop: TrainingLoop, run_dir: RunDir, log: Callable[[str], None]) -> None:
    """Restore the last readable checkpoint."""
    last = state.load_last_checkpoint(run_dir.checkpoints)
    if last is None:
        run_dir.truncate_metrics(0)
        log("no checkpoint to resume from: starting from step 0")
        return
    checkpoint, errors = last
    for error in errors:
        log(f"{error}; skipped")
    loop.restore(checkpoint)
    for name, value in state.environment(loop.settings.device).items():
        previous = checkpoint.environment.get(name, value)  # older runs have fewer entries
        if previous != value:
            log(f"{name} changed from {previous} to {value}: results may differ in the last digits")
    log(f"resuming from step {checkpoint.progress.step}")


def _average_and_finish(loop: TrainingLoop) -> str:
    """Evaluate the average of several checkpoints if the recipe has it; save it as the best model if it is.

    Returns a description of the best model. No checkpoint contains this step: a run that is stopped during it repeats
    it.
    """
    if not loop.run_dir.best.exists():  # it was removed, and no step is left that would write it again
        _restore_best(loop)
    checkpoints = state.list_checkpoints(loop.run_dir.checkpoints)
    steps = retention.checkpoints_to_average(list(checkpoints), loop.settings, loop.progress)
    if len(steps) > 1:
        loop.run_dir.truncate_metrics(loop.progress.metrics_bytes)
        parameters = dict(loop.network.named_parameters())
        average = checkpoint_averaging.average_checkpoints([checkpoints[step] for step in steps])
        with swap_parameters(parameters, average):
            info = {"step": loop.progress.step, "averaged_steps": steps}
            value = loop.run_evaluation(info) if loop.evaluate else None
            # An average without a value is no better than a model that was evaluated.
            unknown = value is None and loop.monitor.timed_out
            if not unknown and (value is None or loop.settings.is_better(value, loop.progress.best_value)):
                loop.run_dir.replace_best(loop.save_model, info, value)
    best = loop.run_dir.best_info()
    if "averaged_steps" in best:
        return f"average of steps {', '.join(map(str, best['averaged_steps']))}"
    return f"step {best.get('step', loop.progress.best_step)}"


def _restore_best(loop: TrainingLoop) -> None:
    """Save the last network as the best model. It was evaluated, unless `best_metric` changed since."""
    progress, run_dir = loop.progress, loop.run_dir
    progress.best_value = None
    value = progress.metric_by_step.get(str(progress.step))
    if loop.evaluate is not None and value is None:
        loop.evaluate_and_keep_best()
    elif value is None or not math.isnan(value):
        with loop.ema_parameters():
            run_dir.replace_best(loop.save_model, {"step": progress.step}, value)
        progress.best_value, progress.best_step = value, progress.step
    if not run_dir.best.exists():
        raise ValueError(
            f"every evaluation gave NaN for {loop.settings.best_metric!r}, so no best model was saved. The last "
            f"checkpoint is in {run_dir.checkpoints}"
        )


@contextmanager
def _num_threads(number: int | None) -> Iterator[None]:
    """Set the number of torch's CPU threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
