"""Generate `docs/families.md` and the family tree `docs/families.svg` from the configs.

python docs/make_families_page.py          # writes docs/families.md and docs/families.svg
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.families import gpt3, transformer
from regard.families.family import FamilyInfo
from regard.families.registry import FAMILIES, preset
from regard.figure import drawing
from regard.transformer import config
from regard.transformer.config import Attention, Block, Embedding, Stack, Weights
from regard.transformer.mask import Band, Causal

DOCS = Path(__file__).parent


@dataclass(frozen=True)
class FamilyRow:
    """A row of the page: the family, one of its presets, and the number of its published classes."""

    info: FamilyInfo
    preset: str
    design: config.Network
    classes: int


def family_rows() -> list[FamilyRow]:
    """Return a row for each family, the oldest first."""
    rows = [
        FamilyRow(transformer.INFO, "transformer-base", preset("transformer-base"), 0),
        FamilyRow(gpt3.INFO, "gpt3-125m", preset("gpt3-125m"), 0),
    ]
    for family in FAMILIES.values():
        if not family.presets:
            continue  # CLIP's text and vision encoders are parts of CLIP
        name = next(iter(family.presets))
        rows.append(FamilyRow(family.info, name, family.preset(name), len(family.architectures)))
    return sorted(rows, key=lambda row: (row.info.year, row.info.title))


def markdown() -> str:
    """Return the text of the page."""
    header = [
        *["year", "family", "network", "position", "norm", "feed-forward", "attention", "head", "tied", "objective"],
        *["classes", "paper"],
    ]
    lines = [
        "# Families",
        "",
        "Generated from the configs by `python docs/make_families_page.py`; a test fails if it is stale.",
        "Each row describes the first preset of a family. *Classes* is the number of published classes that can be",
        "loaded and saved; the 2017 Transformer is saved in Marian's layout, GPT-3 in regard's own layout.",
        "",
        "![The family tree](families.svg)",
        "",
        "| " + " | ".join(header) + " |",
        "| " + " | ".join("---" for _ in header) + " |",
    ]
    for row in family_rows():
        cells = [
            *[str(row.info.year), row.info.title, network_type(row.design), position(row.design)],
            *[norm(row.design), feedforward(row.design), attention(row.design), head(row.design)],
            *[tied(row.design), row.info.objective, str(row.classes or "–"), row.info.paper],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def network_type(design: config.Network) -> str:
    """Describe the type of the network."""
    names = {
        "EncoderOnly": "encoder",
        "DecoderOnly": "decoder",
        "TwoStream": "encoder, two-stream",
        "DualEncoder": "dual encoder (text, image)",
    }
    return names.get(type(design).__name__, "encoder-decoder")


def single_network(design: config.Network) -> config.SingleNetwork:
    """Return the network itself, or the vision encoder of a dual encoder."""
    return design.vision if isinstance(design, config.DualEncoder) else design


def embedding_stack_block(network: config.Network) -> tuple[Embedding, Stack, Block]:
    """Return the (source) embedding, the last stack and its first block."""
    design = single_network(network)
    embedding = design.source if isinstance(design, config.EncoderDecoder) else design.embedding
    stack = design.encoder if isinstance(design, config.EncoderOnly | config.TwoStream) else design.decoder
    return embedding, stack, stack.blocks[0]


def position(design: config.Network) -> str:
    """Describe the position encoding and the segments."""
    embedding, stack, block = embedding_stack_block(design)
    names = {
        config.Sinusoidal: "sinusoidal, added",
        config.Learned: "learned, added",
        config.Rotary: "rotary",
        config.RelativeBuckets: "relative bias (buckets)",
        config.RelativeWaves: "relative (Transformer-XL)",
        config.ALiBi: "ALiBi",
    }
    labels = [names[type(part)] for part in (embedding.position, stack.position) if part is not None]
    if isinstance(embedding.position, config.Learned) and embedding.position.offset:
        labels[0] += f" from row {embedding.position.offset}"
    if isinstance(block.attention.position, config.RelativeAndSegment):
        labels.append("relative segments")
    if embedding.segments > 1:
        labels.append(f"{embedding.segments} segments")
    return "; ".join(labels)


def norm(design: config.Network) -> str:
    """Describe the norms and their order."""
    embedding, stack, block = embedding_stack_block(design)
    label = f"{type(block.norm).__name__}, {block.order.value}"
    extra = [name for name, layer in (("embedding", embedding.norm), ("final", stack.final_norm)) if layer]
    return label + (f", {' and '.join(extra)}" if extra else "")


def feedforward(design: config.Network) -> str:
    """Describe the feed-forward layer."""
    layer = embedding_stack_block(design)[2].feedforward
    gate = "gated " if isinstance(layer, config.Gated) else ""
    return f"{gate}{layer.activation.value}" + ("" if layer.bias else ", no bias")


def attention(design: config.Network) -> str:
    """Describe the attention and the arrangement of the blocks."""
    _, stack, block = embedding_stack_block(design)
    labels = [heads(block.attention)]
    if isinstance(stack.mask, Causal):
        labels.append("causal")
    if block.cross_attention is not None:
        labels.append("cross")
    if any(isinstance(block.mask, Band) for block in stack.blocks):
        labels.append("dense and banded in alternation" if len(stack.blocks) > 1 else "banded")
    if stack.memory is not None:
        labels.append("memory")
    if isinstance(stack.sharing, config.Groups):
        labels.append("shared layers")
    return ", ".join(labels)


def heads(design: Attention) -> str:
    """Describe the numbers of query heads and of key/value heads."""
    if design.key_value_heads == design.heads:
        return f"{design.heads} heads"
    return f"{design.heads} query heads, {design.key_value_heads} key/value heads"


def head(design: config.Network) -> str:
    """Describe the head of the preset."""
    names = {
        "LanguageModel": "language model",
        "AdaptiveLanguageModel": "adaptive softmax",
        "ReplacedTokens": "replaced-token detection",
        "PatchClassification": "classification",
        "NoneType": "–",
    }
    name = type(single_network(design).head).__name__
    return names.get(name, name.lower())


def tied(design: config.Network) -> str:
    """Describe which embeddings are tied."""
    labels = []
    if isinstance(design, config.EncoderDecoder) and isinstance(design.target.tokens, config.SourceTokens):
        labels.append("source and target")
    head = single_network(design).head
    weights = getattr(head, "weights", getattr(head, "tables", None))
    if weights is Weights.TIED:
        labels.append("output")
    return ", ".join(labels) or "–"


YEAR, LINE, BOX_HEIGHT = 1.45, 0.42, 0.27
"""Width of a year, height of a line and of a box, in inches."""
LEFT, TOP, PADDING, FONT_SIZE = 0.25, 1.0, 0.09, 9
COLOURS = {"encoder": "#cfe3f7", "decoder": "#fbe0c5", "encoder-decoder": "#d6efd2", "dual encoder": "#e6d9f2"}


@dataclass(frozen=True)
class TreeBox:
    """A family in the tree: its box, in inches from the top left corner."""

    row: FamilyRow
    x: float
    y: float
    width: float


def tree_boxes() -> list[TreeBox]:
    """Return the boxes of the family tree: years from left to right, each family on its own line below its parent."""
    rows = family_rows()
    return [
        TreeBox(
            row,
            LEFT + (row.info.year - rows[0].info.year) * YEAR,
            TOP + line * LINE,
            text_width(row.info.title) + 2 * PADDING,
        )
        for line, row in enumerate(_descendants(None, rows))
    ]


def text_width(text: str) -> float:
    """Return the width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=FONT_SIZE, prop=FontProperties(family="DejaVu Sans")).get_extents().width / 72


def draw_tree(path: Path) -> None:
    """Draw the family tree."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyBboxPatch

    boxes = tree_boxes()
    years = [box.row.info.year for box in boxes]
    # The last column ends with its widest box, or with a year.
    width = max(*(box.x + box.width for box in boxes), LEFT + (max(years) - min(years)) * YEAR + 0.5) + LEFT
    height = boxes[-1].y + LINE + 0.1
    with drawing(path, width=width, height=height) as canvas:
        axes = canvas.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        axes.text(LEFT, 0.25, "Families by year and descent", fontsize=12, va="center")
        _draw_legend(axes)
        for year in range(min(years), max(years) + 1):
            x = LEFT + (year - min(years)) * YEAR
            axes.text(x, TOP - 0.2, str(year), color="#555555", va="center")
            axes.add_line(
                Line2D([x - 0.06, x - 0.06], [TOP - 0.3, height - 0.1], color="#eeeeee", linewidth=0.8, zorder=0)
            )
        corners = {box.row.info.title: box for box in boxes}
        for box in boxes:
            if box.row.info.parent is not None:
                parent = corners[box.row.info.parent]
                x, middle = parent.x + 0.12, box.y + BOX_HEIGHT / 2
                axes.add_line(
                    Line2D([x, x, box.x], [parent.y + BOX_HEIGHT, middle, middle], color="#999999", lw=0.9, zorder=0.5)
                )
        for box in boxes:
            style = {"boxstyle": "round,pad=0,rounding_size=0.06", "edgecolor": "#555555", "linewidth": 0.8}
            colour = COLOURS[_kind(box.row)]
            axes.add_patch(FancyBboxPatch((box.x, box.y), box.width, BOX_HEIGHT, facecolor=colour, **style))
            title = {"ha": "center", "va": "center", "fontsize": FONT_SIZE}
            axes.text(box.x + box.width / 2, box.y + BOX_HEIGHT / 2, box.row.info.title, **title)


def _draw_legend(axes: Any) -> None:
    from matplotlib.patches import Rectangle

    x = LEFT
    for kind, colour in COLOURS.items():
        axes.add_patch(Rectangle((x, 0.46), 0.16, 0.14, facecolor=colour, edgecolor="#555555", linewidth=0.8))
        axes.text(x + 0.24, 0.53, kind, va="center", fontsize=8)
        x += 0.24 + text_width(kind) + 0.3


def _kind(row: FamilyRow) -> str:
    return network_type(row.design).split(",")[0].split(" (")[0]


def _descendants(parent: str | None, rows: list[FamilyRow]) -> list[FamilyRow]:
    """Return the children of a family, each followed by its own descendants."""
    children = [row for row in rows if row.info.parent == parent]
    return [row for child in children for row in (child, *_descendants(child.info.title, rows))]


def write() -> None:
    """Write the page and the family tree."""
    DOCS.joinpath("families.md").write_text(markdown(), encoding="utf-8")
    draw_tree(DOCS / "families.svg")


if __name__ == "__main__":
    write()
