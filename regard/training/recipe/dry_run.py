"""Describe a run without starting it: the recipe with its defaults, parameters, memory, steps."""

from __future__ import annotations

from regard.training.losses.cross_entropy import CHUNK_LOGITS
from regard.training.optim.optimizer import AdafactorConfig, AdamWConfig, MuonConfig
from regard.training.recipe import schema
from regard.training.recipe.preflight import check_recipe, checked_network_config
from regard.training.recipe.schema import NewTokenizerSection, Recipe
from regard.training.recipe.training_section import TrainingSection
from regard.transformer import config
from regard.transformer.summary import count_parameters


def describe_run(recipe: Recipe) -> str:
    """Return the recipe with all defaults filled in, and as comments the parameters, memory and steps of the run."""
    check_recipe(recipe)
    network = checked_network_config(recipe)
    parameters = count_parameters(network)
    settings = recipe.training
    fixed, per_batch = estimate_memory(recipe, network)
    total, states, activations = map(format_bytes, (fixed + per_batch, fixed, per_batch))
    lines = [
        f"parameters    {parameters:,}" + (" at most" if isinstance(recipe.tokenizer, NewTokenizerSection) else ""),
        f"memory        about {total}: {states} for parameters, gradients and optimizer,",
        f"              up to {activations} for the activations of a batch of {settings.batch_tokens:,} tokens",
        f"steps         {_describe_steps(settings)}",
    ]
    return schema.recipe_to_toml(recipe) + "\n" + "\n".join(f"# {line}" for line in lines) + "\n"


def _describe_steps(settings: TrainingSection) -> str:
    step = f"optimizer steps of at most {settings.gradient_accumulation_steps} × {settings.batch_tokens:,} tokens"
    limit = "" if settings.minutes is None else f", in at most {settings.minutes:g} minutes"
    if settings.epochs is not None:
        return f"{step}, {settings.epochs:g} times through the training data{limit}"
    if settings.steps is None:
        every = f"evaluated every {settings.evaluate_every:,}, saved every {settings.save_every:,}"
        return f"{step}, until {settings.minutes:g} minutes have passed; {every}"
    evaluations = -(-settings.steps // settings.evaluate_every)
    checkpoints = -(-settings.steps // settings.save_every)
    return f"{settings.steps:,} {step}{limit}; evaluated {evaluations} times, saved {checkpoints} times"


def estimate_memory(recipe: Recipe, network: config.Network) -> tuple[int, int]:
    """Estimate the bytes for parameters, gradients and optimizer, and for the activations of a batch (upper bounds)."""
    parameters, settings = count_parameters(network), recipe.training
    optimizer_copies = {AdamWConfig: 2.0, MuonConfig: 1.2, AdafactorConfig: 0.02}[type(settings.optimizer)]
    fixed = 4 * parameters * (2 + optimizer_copies + (1 if settings.ema_decay else 0))
    activations = sum(
        [
            _activations_per_token(stack, network.model_dim, settings.gradient_checkpointing)
            for stack in _stacks(network)
        ]
    )
    vocab_size = getattr(getattr(network, "head", None), "vocabulary", 0)
    passes = 2 if getattr(recipe.objective, "rdrop", 0) else 1
    tokens = settings.batch_tokens * passes
    logits = min(3 * tokens * vocab_size, 3 * CHUNK_LOGITS)  # the loss is computed in chunks
    return int(fixed), int(4 * (tokens * activations + logits))


def _activations_per_token(stack: config.Stack, model_dim: int, gradient_checkpointing: bool) -> int:
    """Numbers that are saved for each token until the backward pass."""
    block = stack.blocks[0]
    attentions = 1 if block.cross_attention is None else 2
    feedforward = block.feedforward.dim * (5 if isinstance(block.feedforward, config.Gated) else 3)
    per_layer = (8 * attentions + 4) * model_dim + feedforward
    return stack.layers * model_dim + per_layer if gradient_checkpointing else stack.layers * per_layer


def _stacks(network: config.Network) -> list[config.Stack]:
    return [getattr(network, side) for side in ("encoder", "decoder") if hasattr(network, side)]


def format_bytes(count: int) -> str:
    """Format a number of bytes in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
