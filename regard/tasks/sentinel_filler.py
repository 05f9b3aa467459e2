"""The `SentinelFiller`: what is missing in a text, as an encoder-decoder with sentinels generates it (T5).

source    The <extra_id_0> walks in <extra_id_1> park.
target    <extra_id_0> cute dog <extra_id_1> the <extra_id_2>
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from regard.generation.beam import BeamSearch
from regard.generation.decoding_options import DecodingOptions
from regard.generation.inputs import Inputs, OverlongInput
from regard.generation.result import DecodingResult
from regard.generation.scheduler import BatchSize, generate
from regard.generation.search import GreedySearch
from regard.tasks.fill import Filling, FillOptions
from regard.tasks.generation_config import GenerationConfig
from regard.tasks.inputs import check_iterable
from regard.tasks.mask_filler import MASK, Proposals, replace_masks
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import BUFFER_SIZE
from regard.transformer.interface import GenerativeNetwork

TOKENS_FOR_MASK = 12
"""Maximum number of tokens that are generated for each mask, its sentinel included."""


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the sentinels in their order; empty if the vocabulary has none."""
    vocabulary = tokenizer.get_vocab()
    names = itertools.takewhile(vocabulary.__contains__, (f"<extra_id_{number}>" for number in itertools.count()))
    return [vocabulary[name] for name in names]


class SentinelFiller:
    """An encoder-decoder with sentinels and its tokenizer, ready to fill in."""

    def __init__(
        self,
        network: GenerativeNetwork,
        tokenizer: Tokenizer,
        generation_config: GenerationConfig,
        options: FillOptions,
    ) -> None:
        if options.pseudo_perplexity:
            raise ValueError("pseudo_perplexity needs an encoder; this network has a decoder too")
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.sentinels = sentinel_ids(tokenizer)
        self.start = generation_config.decoder_start_token_id or 0
        self.end_ids = frozenset(generation_config.eos_token_ids)
        self.batch_size = BatchSize(sequences=max(16, options.top_k))

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Filling]:
        """Fill in every text; results come in the order of the inputs.

        The proposals are those of a beam search for all masks together. The probability of a proposal is that of all
        outputs of the beam that contain it.
        """
        check_iterable(inputs)
        remaining = iter(inputs)
        while texts := list(itertools.islice(remaining, buffer_size)):
            for num_masks, group in itertools.groupby(texts, key=lambda text: len(MASK.findall(text))):
                yield from self._fill(list(group), num_masks)

    def _fill(self, texts: Sequence[str], num_masks: int) -> Iterator[Filling]:
        """Fill in texts with the same number of masks."""
        if num_masks > len(self.sentinels):
            raise ValueError(f"a text has {num_masks} masks; the vocabulary has sentinels for {len(self.sentinels)}")
        if not num_masks:
            yield from (Filling(text=text, proposals=()) for text in texts)
            return
        beam = self.options.top_k
        options = DecodingOptions(
            search=GreedySearch() if beam == 1 else BeamSearch(beam=beam, length_penalty=0.0, n_best=beam),
            eos_token_ids=[*self.end_ids, *self.sentinels[num_masks : num_masks + 1]],
            max_new_tokens=TOKENS_FOR_MASK * num_masks + 1,
            overlong_input=OverlongInput.TRUNCATE,
        )
        pending = deque(texts)
        inputs = (Inputs(prompt=[self.start], source=self._encode(text)) for text in texts)
        for result in generate(self.network, inputs, options, batch_size=self.batch_size):
            yield self._filling(pending.popleft(), num_masks, result)

    def _encode(self, text: str) -> list[int]:
        numbers = itertools.count()
        spelled = MASK.sub(lambda _: f"<extra_id_{next(numbers)}>", text)
        return self.tokenizer.encode(spelled, parse_special_tokens=True).ids

    def _filling(self, text: str, num_masks: int, result: DecodingResult) -> Filling:
        probabilities: list[dict[str, float]] = [defaultdict(float) for _ in range(num_masks)]
        for hypothesis in result.hypotheses:
            probability = math.exp(sum(hypothesis.token_scores))
            for words, span in zip(probabilities, self._spans(hypothesis.tokens, num_masks), strict=True):
                words[span] += probability
        best = self._spans(result.hypotheses[0].tokens, num_masks)
        proposals: list[Proposals] = [
            tuple(sorted(words.items(), key=lambda pair: -pair[1])) for words in probabilities
        ]
        filled = replace_masks(text, [((span, 1.0),) for span in best])
        return Filling(text=filled, proposals=tuple(proposals), truncated=result.truncated)

    def _spans(self, tokens: Sequence[int], num_masks: int) -> list[str]:
        """Return the text after each sentinel, up to the next one; empty for a sentinel that was not generated."""
        spans: list[list[int]] = [[] for _ in range(num_masks)]
        current: list[int] | None = None
        for token in tokens:
            if token in self.sentinels:
                number = self.sentinels.index(token)
                current = spans[number] if number < num_masks else None
            elif current is not None and token not in self.end_ids:
                current.append(token)
        return [self.tokenizer.target.decode(span).strip() for span in spans]
