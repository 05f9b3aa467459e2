"""What a network loses by being prepared: measured, on texts, against the network as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.checkpoint.files import read_json, write_json
from regard.engine.linear import Precision
from regard.transformer.batch_layout import Rows
from regard.transformer.network import EncoderDecoder

FILE = "engine.json"
"""What a folder says about the precision that it was made for."""


@dataclass(frozen=True)
class Probe:
    """A text to measure on."""

    tokens: Sequence[int]
    """What the network reads; of an encoder-decoder, the target."""
    source: Sequence[int] = ()


@dataclass(frozen=True)
class Loss:
    """How far a prepared network is from the plain one."""

    on: str
    """Which texts."""
    tokens: int
    cosine: float
    """Between the vectors of both after the last block, on average."""
    agreement: float | None = None
    """How often both find the same token, or label, the likeliest."""
    divergence: float | None = None
    """How many nats a token costs more if one expects what the prepared network says (Kullback and Leibler)."""

    def __str__(self) -> str:
        said = f"on {self.on} ({self.tokens:,} tokens): cosine of the vectors {self.cosine:.4f}"
        if self.agreement is not None and self.divergence is not None:
            said += f", the same likeliest token {self.agreement:.1%}, divergence {self.divergence:.4f} nats"
        return said


@torch.inference_mode()
def measure(plain: nn.Module, prepared: nn.Module, probes: Sequence[Probe], on: str) -> Loss:
    """Let both read the same texts, and compare what they make of each token."""
    cosines, same, divergences = [], [], []
    for at in range(0, len(probes), 16):
        part = probes[at : at + 16]
        (one, said), (other, answered) = _read(plain, part), _read(prepared, part)
        cosines.append(nn.functional.cosine_similarity(one, other, dim=-1))
        if said is not None and answered is not None:
            same.append((said.argmax(dim=-1) == answered.argmax(dim=-1)).float())
            expected, found = said.log_softmax(dim=-1), answered.log_softmax(dim=-1)
            divergences.append((expected.exp() * (expected - found)).sum(dim=-1))
    return Loss(
        on,
        sum(len(probe.tokens) for probe in probes),
        float(torch.cat(cosines).mean()),
        float(torch.cat(same).mean()) if same else None,
        float(torch.cat(divergences).mean()) if divergences else None,
    )


def _read(
    network: nn.Module, probes: Sequence[Probe]
) -> tuple[Float[Tensor, "tokens model"], Float[Tensor, "scored labels"] | None]:
    tokens, rows = _side_by_side([probe.tokens for probe in probes])
    if isinstance(network, EncoderDecoder):
        sources, source_rows = _side_by_side([probe.source for probe in probes])
        output = network(sources, tokens, rows=source_rows, target_rows=rows)
    else:
        output = network(tokens, rows=rows)
    return output.hidden, output.logits


def _side_by_side(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, " tokens"], Rows]:
    return torch.tensor([token for row in rows for token in row]), Rows.of([len(row) for row in rows])


def write(folder: Path, precision: Precision, loss: Loss | None) -> None:
    """Keep beside the weights which precision they were rounded for, and what that costs."""
    write_json(folder / FILE, {"precision": precision.value, "loss": None if loss is None else asdict(loss)})


def read(folder: Path | None) -> tuple[Precision, Loss | None] | None:
    """What a folder says of its precision; None if it is an ordinary one."""
    if folder is None or not (folder / FILE).is_file():
        return None
    values: dict[str, Any] = read_json(folder / FILE)
    try:
        loss = values.get("loss")
        return Precision(values["precision"]), None if loss is None else Loss(**loss)
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"{folder / FILE}: expected a precision and a loss ({error}): convert the model again"
        ) from None
