"""How well a network does its task while it is trained: BLEU and chrF of translations, and a few of them to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from regard.data.example import Pair
from regard.tasks import habits
from regard.tasks.translate import Translator, Wish
from regard.training.prepare import source_of
from regard.training.run import Trained

MEASURED, SHOWN = 500, 3
"""How many texts of the validation data are translated at each evaluation, and how many of them are shown."""
SPARE = 8
"""How many tokens more than the longest that is expected may be written."""


def measure(trained: Trained) -> Mapping[str, float]:
    """The task's own measures on the validation data; nothing where the loss says it all."""
    if trained.recipe.task not in ("translate", "summarize"):
        return {}
    import sacrebleu

    pairs = _pairs(trained, MEASURED)
    said = _translated(trained, pairs)
    targets = [[pair.target for pair in pairs]]
    return {
        "bleu": sacrebleu.corpus_bleu(said, targets).score,
        "chrf": sacrebleu.corpus_chrf(said, targets).score,
    }


def sample(trained: Trained) -> Sequence[str]:
    """A few outputs for a person to look at: what was given, what was expected, what came."""
    if trained.recipe.task not in ("translate", "summarize"):
        return []
    pairs = _pairs(trained, SHOWN)
    said = _translated(trained, pairs)
    return [
        f"  {pair.source}\n    expected {pair.target}\n    written  {text}"
        for pair, text in zip(pairs, said, strict=True)
    ]


def _pairs(trained: Trained, count: int) -> list[Pair]:
    examples = source_of(trained.recipe, trained.recipe.data.valid).read()
    return [example for example in islice(examples, count) if isinstance(example, Pair)]


def _translated(trained: Trained, pairs: Sequence[Pair]) -> list[str]:
    """Greedy translations: quick, and good enough to see which state is better.

    A network that has not yet learnt to end would write on and on, so nothing is written that is much longer than the
    longest translation that is expected.
    """
    usual = habits.read(None, trained.tokenizer)
    longest = max(map(len, trained.tokenizer.target.ids_of([pair.target for pair in pairs])), default=0)
    wish = Wish(beam=1, rows=64, limit=longest + SPARE)
    translator = Translator(trained.network, trained.tokenizer, replace(usual, start=trained.start), wish)
    return [written.text for written in translator.translate(pair.source for pair in pairs)]
