"""What a recipe would do, said before anything is done: the recipe filled in, parameters, memory, steps."""

from __future__ import annotations

from regard.training.losses.cross_entropy import SCORES
from regard.training.optim.optimizer import Adafactor, AdamW, Muon
from regard.training.recipe import schema
from regard.training.recipe.network_factory import width
from regard.training.recipe.preflight import check, design_of
from regard.training.recipe.schema import NewTokenizer, Recipe
from regard.training.recipe.training_section import Training
from regard.transformer import config
from regard.transformer.module_tree import count


def outlook(chosen: Recipe) -> str:
    """The recipe with everything filled in, and as comments what would come of it."""
    check(chosen)
    design = design_of(chosen)
    parameters = count(design)
    plan = chosen.training
    fixed, moving = memory(chosen, design)
    lines = [
        f"parameters    {parameters:,}" + (" at most" if isinstance(chosen.tokenizer, NewTokenizer) else ""),
        f"memory        about {size(fixed + moving)}: {size(fixed)} for parameters, gradients and optimizer,",
        f"              up to {size(moving)} for a batch of {plan.tokens:,} tokens",
        f"steps         {_steps(plan)}",
    ]
    return schema.written(chosen) + "\n" + "\n".join(f"# {line}" for line in lines) + "\n"


def _steps(plan: Training) -> str:
    each = f"updates of {plan.accumulate} × {plan.tokens:,} tokens at most"
    limit = "" if plan.minutes is None else f", in at most {plan.minutes:g} minutes"
    if plan.steps is None:
        every = f"evaluated every {plan.evaluate_every:,}, saved every {plan.save_every:,}"
        return f"{each}, as many as {plan.minutes:g} minutes allow; {every}"
    times = f"evaluated {-(-plan.steps // plan.evaluate_every)} times, saved {-(-plan.steps // plan.save_every)} times"
    return f"{plan.steps:,} {each}{limit}; {times}"


def memory(chosen: Recipe, design: config.Network) -> tuple[int, int]:
    """Bytes for what belongs to the parameters, and for a batch: an estimate, on the large side."""
    parameters, plan = count(design), chosen.training
    copies = {AdamW: 2.0, Muon: 1.2, Adafactor: 0.02}[type(plan.optimizer)]
    fixed = 4 * parameters * (2 + copies + (1 if plan.ema else 0))
    values = sum([_kept(stack, width(design), plan.recompute) for stack in _stacks(design)])
    vocabulary = getattr(getattr(design, "head", None), "vocabulary", 0)
    readings = 2 if getattr(chosen.objective, "agreement", 0) else 1
    scores = min(3 * plan.tokens * readings * vocabulary, 3 * SCORES)  # never all of them at once
    return int(fixed), int(4 * (plan.tokens * readings * values + scores))


def _kept(stack: config.Stack, model_dim: int, recompute: bool) -> int:
    """Numbers that are kept for each token until the way back."""
    block = stack.blocks[0]
    attentions = 1 if block.cross_attention is None else 2
    inside = block.feedforward.dim * (5 if isinstance(block.feedforward, config.Gated) else 3)
    one = (8 * attentions + 4) * model_dim + inside
    return stack.layers * model_dim + one if recompute else stack.layers * one


def _stacks(design: config.Network) -> list[config.Stack]:
    return [getattr(design, side) for side in ("encoder", "decoder") if hasattr(design, side)]


def size(count: int) -> str:
    """A number of bytes as people write it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
