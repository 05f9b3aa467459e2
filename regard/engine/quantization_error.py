"""Quantization error: compares a compiled network with the original on calibration samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.checkpoint.model_folder import INFO_FILE, OLD_QUANTIZATION_FILE, ModelFolder, QuantizationRecord
from regard.engine.linear import Precision
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.network import EncoderDecoder

OLD_FIELDS = {
    "on": "dataset",
    "cosine": "cosine_similarity",
    "agreement": "top1_agreement",
    "divergence": "kl_divergence",
}
"""Fields of `QuantizationMetrics` under their names in older records, where they are under the key "loss"."""


MIN_TOP1_AGREEMENT = 0.95
"""A language model whose most likely token changes more often writes other texts."""
MIN_COSINE_SIMILARITY = 0.99
"""An encoder whose vectors turn further away from the original ones gives other results."""


class QuantizationWarning(RuntimeWarning):
    """int8 changes what a model predicts."""


@dataclass(frozen=True)
class CalibrationSample:
    """A text to measure the quantization error on."""

    tokens: Sequence[int]
    """The input of the network; of an encoder-decoder, the target."""
    source: Sequence[int] = ()
    """The source, of an encoder-decoder."""


@dataclass(frozen=True)
class QuantizationMetrics:
    """The difference between a compiled network and the original."""

    dataset: str
    """The name of the calibration texts."""
    tokens: int
    """The number of tokens."""
    cosine_similarity: float
    """Mean cosine similarity of the hidden states after the last block."""
    top1_agreement: float | None = None
    """How often the most probable token, or label, is the same."""
    kl_divergence: float | None = None
    """Mean KL(original ‖ compiled) of the predicted distributions, in nats per token."""

    def fault(self, generates: bool) -> str | None:
        """Return why the error is too large, None if it is not.

        A network that generates is judged by its most likely tokens, any other by its hidden states.
        """
        if generates and self.top1_agreement is not None:
            if self.top1_agreement < MIN_TOP1_AGREEMENT:
                return (
                    f"the most likely token is the same for {self.top1_agreement:.1%} of the tokens only "
                    f"({self.dataset}; expected: at least {MIN_TOP1_AGREEMENT:.0%})"
                )
        elif self.cosine_similarity < MIN_COSINE_SIMILARITY:
            return (
                f"the cosine similarity of its vectors with the original ones is {self.cosine_similarity:.3f} only "
                f"({self.dataset}; expected: at least {MIN_COSINE_SIMILARITY})"
            )
        return None

    def __str__(self) -> str:
        text = (
            f"quantization error on {self.dataset} ({self.tokens:,} tokens): "
            f"cosine similarity {self.cosine_similarity:.4f}"
        )
        if self.top1_agreement is not None and self.kl_divergence is not None:
            text += f", top-1 agreement {self.top1_agreement:.1%}, KL divergence {self.kl_divergence:.4f} nats"
        return text


@torch.inference_mode()
def measure_quantization_error(
    reference: nn.Module, compiled: nn.Module, samples: Sequence[CalibrationSample], dataset: str
) -> QuantizationMetrics:
    """Run both networks on the samples and compare their hidden states and logits token by token."""
    similarities, agreements, divergences = [], [], []
    for start in range(0, len(samples), 16):
        batch = samples[start : start + 16]
        hidden, logits = _forward(reference, batch)
        compiled_hidden, compiled_logits = _forward(compiled, batch)
        similarities.append(nn.functional.cosine_similarity(hidden, compiled_hidden, dim=-1))
        if logits is not None and compiled_logits is not None:
            agreements.append((logits.argmax(dim=-1) == compiled_logits.argmax(dim=-1)).float())
            log_probs, compiled_log_probs = logits.log_softmax(dim=-1), compiled_logits.log_softmax(dim=-1)
            divergences.append((log_probs.exp() * (log_probs - compiled_log_probs)).sum(dim=-1))
    return QuantizationMetrics(
        dataset,
        sum(len(sample.tokens) for sample in samples),
        float(torch.cat(similarities).mean()),
        float(torch.cat(agreements).mean()) if agreements else None,
        float(torch.cat(divergences).mean()) if divergences else None,
    )


def _forward(
    network: nn.Module, samples: Sequence[CalibrationSample]
) -> tuple[Float[Tensor, "tokens model"], Float[Tensor, "scored labels"] | None]:
    tokens, layout = _pack_tokens([sample.tokens for sample in samples])
    if isinstance(network, EncoderDecoder):
        source, source_layout = _pack_tokens([sample.source for sample in samples])
        output = network(source, tokens, layout=source_layout, target_layout=layout)
    else:
        output = network(tokens, layout=layout)
    return output.hidden, output.logits


def _pack_tokens(sequences: Sequence[Sequence[int]]) -> tuple[Int[Tensor, " tokens"], BatchLayout]:
    tokens = torch.tensor([token for sequence in sequences for token in sequence])
    return tokens, BatchLayout.of([len(sequence) for sequence in sequences])


def write_quantization_record(folder: ModelFolder, precision: Precision, metrics: QuantizationMetrics | None) -> None:
    """Write the precision that the weights of a folder were quantized for, and the quantization error."""
    error = None if metrics is None else asdict(metrics)
    record: QuantizationRecord = {"precision": precision.value, "quantization_error": error}
    folder.write_info({**folder.info, "quantization": record})


def read_quantization_record(folder: ModelFolder) -> tuple[Precision, QuantizationMetrics | None] | None:
    """Read the precision and the quantization error of a folder; None if its weights are not quantized."""
    record = folder.info.get("quantization")
    if record is None:
        return None
    try:
        return Precision(record["precision"]), _parse_metrics(record)
    except (KeyError, ValueError, TypeError) as error:
        name = OLD_QUANTIZATION_FILE if (folder.path / OLD_QUANTIZATION_FILE).is_file() else INFO_FILE
        raise ValueError(
            f'{folder.path / name}: expected "precision" and "quantization_error" ({error}): run `regard convert` again'
        ) from None


def _parse_metrics(values: Mapping[str, Any]) -> QuantizationMetrics | None:
    """Return the quantization error, which older records have under "loss" with other field names."""
    if "quantization_error" in values:
        fields = values["quantization_error"]
        return None if fields is None else QuantizationMetrics(**fields)
    if values.get("loss") is None:
        return None
    old_fields: dict[str, Any] = dict(values["loss"])
    return QuantizationMetrics(**{OLD_FIELDS.get(name, name): value for name, value in old_fields.items()})
