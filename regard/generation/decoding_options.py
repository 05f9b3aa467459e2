"""The options of decoding: search strategy, logits processors, stopping criteria, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.generation.inputs import OverlongInput, PreparedInputs
from regard.generation.logits_processors import ForcedEos, LogitsProcessor, MinNewTokens
from regard.generation.search import GreedySearch, SearchStrategy, StepOptions
from regard.generation.stopping_criteria import EosToken, StoppingCriterion, combine_criteria, reached_max_new_tokens

DEFAULT_SEARCH = GreedySearch()


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to generate; the same options hold for all inputs of one call."""

    search: SearchStrategy = DEFAULT_SEARCH
    """The search strategy: greedy search, random sampling or beam search."""
    eos_token_ids: Sequence[int] = ()
    """The tokens that end an output (EOS)."""
    logits_processors: Sequence[LogitsProcessor] = ()
    """Applied to the logits at every step, in this order."""
    stopping_criteria: Sequence[StoppingCriterion] = ()
    """Further criteria, besides the EOS tokens and `max_new_tokens`."""
    max_new_tokens: int | None = None
    """Maximum number of generated tokens. Default: derived from the network and the input (`inputs.py`)."""
    overlong_input: OverlongInput = OverlongInput.ERROR
    """How to handle an input that has more tokens than the network has positions."""
    capture: Sequence[str] = ()
    """Addresses of decoder attentions whose weights are captured: `decoder.blocks.4.cross_attention`."""

    def step_options(self) -> StepOptions:
        """Return the options of a single step, with all stopping criteria combined into one."""
        criteria: list[StoppingCriterion] = [EosToken(self.eos_token_ids), *self.stopping_criteria]
        # An EOS token that is forced at the maximum length counts as LENGTH, not as END: so the length is checked
        # first.
        forced = any(isinstance(processor, ForcedEos) for processor in self.logits_processors)
        criteria = [reached_max_new_tokens, *criteria] if forced else [*criteria, reached_max_new_tokens]
        return StepOptions(
            logits_processors=self.logits_processors,
            stopping_criterion=combine_criteria(criteria),
            num_eos_tokens=len(self.eos_token_ids),
        )

    def check_inputs(self, inputs: PreparedInputs) -> None:
        """Raise a ValueError if `min_new_tokens` exceeds the maximum for this input."""
        for processor in self.logits_processors:
            if isinstance(processor, MinNewTokens) and processor.min_new_tokens > inputs.max_new_tokens:
                raise ValueError(
                    f"input {inputs.index + 1}: min_new_tokens={processor.min_new_tokens} exceeds "
                    f"max_new_tokens={inputs.max_new_tokens}: lower the first or raise the second"
                )
