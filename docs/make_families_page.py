"""The page `docs/families.md` and its picture, made from the configs themselves.

python docs/make_families_page.py          # writes docs/families.md and docs/families.svg
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.families import gpt3, transformer
from regard.families.family import Story
from regard.families.registry import FAMILIES, preset
from regard.transformer import config
from regard.transformer.config import Attention, Block, Embedding, Stack, Weights
from regard.transformer.mask import Band, Causal

DOCS = Path(__file__).parent


@dataclass(frozen=True)
class Member:
    """A family as the page tells it: its story, a published network of its, and its classes."""

    story: Story
    name: str
    design: config.Network
    classes: int


def members() -> list[Member]:
    """All families, the oldest first."""
    found = [
        Member(transformer.STORY, "transformer-base", preset("transformer-base"), 0),
        Member(gpt3.STORY, "gpt3-125m", preset("gpt3-125m"), 0),
    ]
    for family in FAMILIES.values():
        if not family.presets:
            continue  # a part of another: each of CLIP's two sides
        name = next(iter(family.presets))
        found.append(Member(family.story, name, family.preset(name), len(family.architectures)))
    return sorted(found, key=lambda member: (member.story.year, member.story.title))


def page() -> str:
    """The whole page."""
    header = [
        *["year", "family", "network", "position", "norm", "feed-forward", "attention", "head", "tied", "objective"],
        *["classes", "paper"],
    ]
    lines = [
        "# Families",
        "",
        "Made by `python docs/make_families_page.py` from the configs themselves; a test fails when it is stale.",
        "Each row describes the first published size of a family. *Classes* counts the published classes that can be",
        "read and written; the 2017 Transformer is saved as Marian's, GPT-3 under our own names.",
        "",
        "![The family tree](families.svg)",
        "",
        "| " + " | ".join(header) + " |",
        "| " + " | ".join("---" for _ in header) + " |",
    ]
    for member in members():
        cells = [
            *[str(member.story.year), member.story.title, kind(member.design), position(member.design)],
            *[norm(member.design), feedforward(member.design), attention(member.design), head(member.design)],
            *[tying(member.design), member.story.objective, str(member.classes or "–"), member.story.paper],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def kind(design: config.Network) -> str:
    """Which of the networks it is."""
    words = {
        "EncoderOnly": "encoder",
        "DecoderOnly": "decoder",
        "TwoStream": "encoder, two streams",
        "DualEncoder": "encoder, of texts and of images",
    }
    return words.get(type(design).__name__, "encoder-decoder")


def single(design: config.Network) -> config.SingleNetwork:
    """The network itself, or the one of two that reads images."""
    return design.vision if isinstance(design, config.DualEncoder) else design


def parts(whole: config.Network) -> tuple[Embedding, Stack, Block]:
    """The embedding, the last stack and its first kind of block."""
    design = single(whole)
    embedding = design.source if isinstance(design, config.EncoderDecoder) else design.embedding
    stack = design.encoder if isinstance(design, config.EncoderOnly | config.TwoStream) else design.decoder
    return embedding, stack, stack.blocks[0]


def position(design: config.Network) -> str:
    """Where positions enter, and how."""
    embedding, stack, block = parts(design)
    names = {
        config.Sinusoidal: "waves, added",
        config.Learned: "learned, added",
        config.Rotary: "rotary",
        config.RelativeBuckets: "bias by bucket of distance",
        config.RelativeWaves: "scores from waves of distance",
        config.ALiBi: "bias by distance",
    }
    found = [names[type(part)] for part in (embedding.position, stack.position) if part is not None]
    if isinstance(embedding.position, config.Learned) and embedding.position.offset:
        found[0] += f" from row {embedding.position.offset}"
    if isinstance(block.attention.position, config.RelativeAndSegment):
        found.append("own or other segment")
    if embedding.segments > 1:
        found.append(f"{embedding.segments} segments")
    return "; ".join(found)


def norm(design: config.Network) -> str:
    """The norms and their order."""
    embedding, stack, block = parts(design)
    told = f"{type(block.norm).__name__}, {block.order.value}"
    extra = [name for name, there in (("embedding", embedding.norm), ("final", stack.final_norm)) if there]
    return told + (f", {' and '.join(extra)}" if extra else "")


def feedforward(design: config.Network) -> str:
    """The feed-forward layer."""
    inner = parts(design)[2].feedforward
    gate = "gated " if isinstance(inner, config.Gated) else ""
    return f"{gate}{inner.activation.value}" + ("" if inner.bias else ", no bias")


def attention(design: config.Network) -> str:
    """What kind of attention, and how the blocks go together."""
    _, stack, block = parts(design)
    told = [heads(block.attention)]
    if isinstance(stack.mask, Causal):
        told.append("causal")
    if block.cross_attention is not None:
        told.append("cross")
    if any(isinstance(kind.mask, Band) for kind in stack.blocks):
        told.append("banded in turn" if len(stack.blocks) > 1 else "banded")
    if stack.memory is not None:
        told.append("memory")
    if isinstance(stack.sharing, config.Groups):
        told.append("shared layers")
    return ", ".join(told)


def heads(design: Attention) -> str:
    """How many heads ask and answer."""
    if design.key_value_heads == design.heads:
        return f"{design.heads} heads"
    return f"{design.heads} heads on {design.key_value_heads}"


def head(design: config.Network) -> str:
    """The head of the published size."""
    words = {
        "LanguageModel": "words",
        "AdaptiveLanguageModel": "words, in steps",
        "ReplacedTokens": "one score a token",
        "PatchClassification": "classification",
        "NoneType": "–",
    }
    said = type(single(design).head).__name__
    return words.get(said, said.lower())


def tying(design: config.Network) -> str:
    """What is tied to what."""
    told = []
    if isinstance(design, config.EncoderDecoder) and isinstance(design.target.tokens, config.SourceTokens):
        told.append("source and target")
    head = single(design).head
    weights = getattr(head, "weights", getattr(head, "tables", None))
    if weights is Weights.TIED:
        told.append("output")
    return ", ".join(told) or "–"


COLUMN, LINE, BOX = 150, 46, (118, 30)
COLOURS = {"encoder": "#cfe3f7", "decoder": "#fbe0c5", "encoder-decoder": "#d6efd2"}


def picture() -> str:
    """The family tree as an SVG: years across, each family in a line of its own below its parent's."""
    everyone = members()
    first = everyone[0].story.year
    order = list(_below(None, everyone))
    spot = {
        member.story.title: (30 + (member.story.year - first) * COLUMN, 50 + line * LINE)
        for line, member in enumerate(order)
    }
    width = 60 + (max(m.story.year for m in everyone) - first) * COLUMN + BOX[0]
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{70 + len(order) * LINE}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for year in range(first, max(m.story.year for m in everyone) + 1):
        drawn.append(f'<text x="{30 + (year - first) * COLUMN}" y="26" fill="#777">{year}</text>')
    for member in order:
        drawn += _line(spot, member)
    for member in order:
        drawn += _box(spot[member.story.title], member)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _below(parent: str | None, everyone: list[Member]) -> list[Member]:
    """A family's children, each followed by its own."""
    children = [member for member in everyone if member.story.parent == parent]
    return [one for child in children for one in (child, *_below(child.story.title, everyone))]


def _line(spot: dict[str, tuple[int, int]], member: Member) -> list[str]:
    if member.story.parent is None:
        return []
    (x, y), (px, py) = spot[member.story.title], spot[member.story.parent]
    corner = px + 14
    return [f'<path d="M{corner} {py + BOX[1]} V{y + BOX[1] // 2} H{x}" fill="none" stroke="#999"/>']


def _box(place: tuple[int, int], member: Member) -> list[str]:
    x, y = place
    colour = COLOURS[kind(member.design).split(",")[0]]
    return [
        f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{colour}" stroke="#555"/>',
        f'<text x="{x + BOX[0] // 2}" y="{y + 20}" text-anchor="middle">{member.story.title}</text>',
    ]


def write() -> None:
    """Write the page and the picture."""
    DOCS.joinpath("families.md").write_text(page(), encoding="utf-8")
    DOCS.joinpath("families.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    write()
