"""How texts are to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.generation.inputs import Admitted, TooLong
from regard.generation.logits_processors import EndAtLimit, MinLength, Rule
from regard.generation.search import Greedy, Search, Terms
from regard.generation.stopping_criteria import End, Stop, at_limit, first

GREEDY = Greedy()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that says how a text is written, the same for all texts of a run."""

    search: Search = GREEDY
    """How continuations are looked for."""
    end: Sequence[int] = ()
    """The tokens that end a text."""
    rules: Sequence[Rule] = ()
    """What may be written, in the order in which it is applied."""
    stop: Sequence[Stop] = ()
    """What else ends a text, besides an end token and the limit."""
    limit: int | None = None
    """How many tokens may be written. Left out, it follows from the network and the input (`given.py`)."""
    too_long: TooLong = TooLong.REFUSE
    """What becomes of an input that the network has too few positions for."""
    watch: Sequence[str] = ()
    """Attentions of the decoder whose weights are kept, by address: `decoder.blocks.4.cross_attention`."""

    def terms(self) -> Terms:
        """The rules, and the conditions in the order in which they are looked at."""
        conditions: list[Stop] = [End(self.end), *self.stop]
        # An end that is written because there was no more room is no end of the text.
        forced = any(isinstance(rule, EndAtLimit) for rule in self.rules)
        conditions = [at_limit, *conditions] if forced else [*conditions, at_limit]
        return Terms(rules=self.rules, stop=first(conditions), ends=len(self.end))

    def check(self, text: Admitted) -> None:
        """Stop if a text cannot be written as the rules want it."""
        for rule in self.rules:
            if isinstance(rule, MinLength) and rule.length > text.limit:
                raise ValueError(
                    f"input {text.number + 1} is to be continued by at least {rule.length} tokens, but there is room "
                    f"for {text.limit}: lower the minimum or raise the limit"
                )
