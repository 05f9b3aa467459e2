"""The `MaskFiller`: the most likely tokens at masks, with a masked language model, XLNet or BART."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import PackedColumn
from regard.tasks.encoder_runner import (
    EncoderRunner,
    PackedRows,
    TokenRow,
    distance_to_edge,
    encode_texts,
    max_row_length,
    process_in_buffers,
    split_to_windows,
)
from regard.tasks.fill import Filling, FillOptions
from regard.tasks.generation_config import GenerationConfig
from regard.tokenization.tokenizer import Encoding, Tokenizer
from regard.training.objectives.translate import shift_right
from regard.training.task import BUFFER_SIZE
from regard.transformer.interface import Predicts, Reads
from regard.transformer.mask import Explicit

MASK = re.compile(r"\[MASK\]|<mask>|<extra_id_\d+>")
"""The spellings of a mask."""
Proposals = tuple[tuple[str, float], ...]


class MaskFiller:
    """A network that predicts masked tokens, and its tokenizer, ready to fill in."""

    def __init__(
        self, network: Any, tokenizer: Tokenizer, generation_config: GenerationConfig, options: FillOptions
    ) -> None:
        self.runner = EncoderRunner(network, options.batch_tokens)
        self.network, self.tokenizer, self.options = network, tokenizer, options
        self.decoder_start = generation_config.decoder_start_token_id or 0
        self.max_length = max_row_length(network, tokenizer)
        assert tokenizer.special_ids.mask is not None
        self.mask_id: int = tokenizer.special_ids.mask
        self.mask_token = tokenizer.id_to_token(self.mask_id)
        if options.pseudo_perplexity and network.reads is Reads.SOURCE_AND_TARGET:
            raise ValueError("pseudo_perplexity needs an encoder; this network has a decoder too")

    def run(self, inputs: Iterable[str], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Filling]:
        """Fill in every text; results come in the order of the inputs. All masks of a text are filled in at once.

        A text that is too long for the network is read in windows that overlap by half; a mask is filled in where it
        has the most context.
        """
        return process_in_buffers(inputs, buffer_size, self._fill)

    def _fill(self, texts: Sequence[str]) -> Iterator[Filling]:
        spelled = [MASK.sub(self.mask_token, text) for text in texts]
        encodings = encode_texts(self.tokenizer, spelled, parse_special_tokens=True)
        windows = [self._windows_with_masks(encoding) for encoding in encodings]
        rows = [
            TokenRow.of(encoding, positions)
            for encoding, each in zip(encodings, windows, strict=True)
            for positions, _ in each
        ]
        outputs = iter(self.runner.map(rows, self._propose))
        for text, encoding, each in zip(texts, encodings, windows, strict=True):
            found: dict[int, Proposals] = {}
            for positions, chosen in each:
                masks = next(outputs)
                found.update((positions[place], masks[index]) for index, place in chosen)
            proposals = tuple(found[position] for position in sorted(found))
            result = Filling(text=replace_masks(text, proposals), proposals=proposals, windows=max(1, len(each)))
            if self.options.pseudo_perplexity:
                result = replace(result, pseudo_perplexity=self._pseudo_perplexity(encoding))
            yield result

    def _windows_with_masks(self, encoding: Encoding) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the windows that fill in a mask. With each, those masks: their index and their place in the window."""
        best: dict[int, tuple[int, int, int, int]] = {}  # by position: margin, window, index and place of the mask
        windows = split_to_windows(encoding, 0, self.max_length)
        for number, positions in enumerate(windows):
            places = [place for place, position in enumerate(positions) if encoding.ids[position] == self.mask_id]
            for index, place in enumerate(places):
                margin = distance_to_edge(place, len(positions))
                if margin > best.get(positions[place], (-1, 0, 0, 0))[0]:
                    best[positions[place]] = margin, number, index, place
        chosen: list[list[tuple[int, int]]] = [[] for _ in windows]
        for _, number, index, place in best.values():
            chosen[number].append((index, place))
        return [(positions, masks) for positions, masks in zip(windows, chosen, strict=True) if masks]

    def _propose(self, batch: PackedRows) -> list[list[Proposals]]:
        """Return the proposals for each mask of each row."""
        masked = batch.tokens == self.mask_id
        log_probabilities = self._log_probabilities(batch, masked)
        scores, ids = log_probabilities.exp().topk(min(self.options.top_k, log_probabilities.shape[1]), dim=1)
        proposals = [
            tuple((self.tokenizer.decode([token], skip_special_tokens=False).strip(), score) for token, score in pairs)
            for pairs in (zip(*row, strict=True) for row in zip(ids.tolist(), scores.tolist(), strict=True))
        ]
        counts = [int(row.sum()) for row in batch.split(masked)]
        ends = torch.tensor(counts).cumsum(0).tolist()
        return [proposals[end - count : end] for count, end in zip(counts, ends, strict=True)]

    def _log_probabilities(self, batch: PackedRows, masked: Tensor) -> Tensor:
        """Return the log-probabilities of all tokens at the masks: masks × vocabulary."""
        network: Any = self.network
        if network.reads is Reads.SOURCE_AND_TARGET:  # BART: the decoder predicts the text from the masked one
            target = shift_right(PackedColumn(batch.tokens, batch.layout), self.decoder_start)
            logits = network(batch.tokens, target, layout=batch.layout, target_layout=batch.layout).logits[masked]
        elif Predicts.NEXT_TOKEN in network.predicts:  # XLNet: no token attends to a masked one
            keywords = {**batch.keywords, "query_stream": True, "mask": _visible(batch, ~masked)}
            logits = network(batch.tokens, layout=batch.layout, **keywords).logits[masked]
        elif getattr(network.head, "per_token", False):  # the vocabulary is large: no logits for other tokens
            hidden = batch.forward(network.without_head()).hidden[masked]
            logits = network.head(hidden, batch.layout).token_logits
        else:
            logits = batch.forward(network).logits[masked]
        return logits.float().log_softmax(dim=-1) if logits.dtype.itemsize < 4 else logits.log_softmax(dim=-1)

    def _pseudo_perplexity(self, encoding: Encoding) -> float | None:
        """Return the pseudo-perplexity of a text. Each token is masked in turn, but special tokens and masks."""
        positions = split_to_windows(encoding, 0, self.max_length)[0]
        row = TokenRow.of(encoding, positions)
        places = [
            place
            for place, position in enumerate(positions)
            if not encoding.special_tokens_mask[position] and row.tokens[place] != self.mask_id
        ]
        masked = [[*row.tokens[:place], self.mask_id, *row.tokens[place + 1 :]] for place in places]
        outputs = self.runner.map([TokenRow(tokens, row.segments) for tokens in masked], self._all_masks)
        scores = [float(output[place][row.tokens[place]]) for place, output in zip(places, outputs, strict=True)]
        return math.exp(-sum(scores) / len(scores)) if scores else None

    def _all_masks(self, batch: PackedRows) -> list[dict[int, Tensor]]:
        """Return the log-probabilities at each mask of each row, by place in the row."""
        masked = batch.tokens == self.mask_id
        values = iter(self._log_probabilities(batch, masked).cpu())
        return [{place: next(values) for place in row.nonzero().flatten().tolist()} for row in batch.split(masked)]


def _visible(batch: PackedRows, visible: Tensor) -> Explicit:
    """Return a mask with which every token attends only to visible tokens of its sequence."""
    allowed = torch.ones(batch.layout.batch_size, batch.layout.longest, dtype=torch.bool, device=visible.device)
    allowed[batch.layout.row_indices, batch.layout.column_indices] = visible
    return Explicit(allowed[:, None, :].expand(-1, batch.layout.longest, -1))


def replace_masks(text: str, proposals: Sequence[Proposals]) -> str:
    """Replace each mask by its first proposal. Masks without a proposal stay."""
    words = iter(proposals)
    return MASK.sub(lambda match: next(iter(next(words, ())), (match[0], 0.0))[0], text)
