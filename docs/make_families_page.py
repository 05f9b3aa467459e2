"""Generate `docs/families.md` and the family tree `docs/families.svg` from the configs.

python docs/make_families_page.py          # writes docs/families.md and docs/families.svg
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regard.families import gpt3, transformer
from regard.families.family import FamilyInfo
from regard.families.registry import FAMILIES, preset
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


COLUMN, LINE, BOX = 150, 46, (118, 30)
COLOURS = {"encoder": "#cfe3f7", "dual encoder": "#cfe3f7", "decoder": "#fbe0c5", "encoder-decoder": "#d6efd2"}


def svg() -> str:
    """Return the family tree as an SVG: years from left to right, each family on its own line below its parent."""
    rows = family_rows()
    first = rows[0].info.year
    order = list(_descendants(None, rows))
    corners = {
        row.info.title: (30 + (row.info.year - first) * COLUMN, 50 + line * LINE) for line, row in enumerate(order)
    }
    width = 60 + (max(row.info.year for row in rows) - first) * COLUMN + BOX[0]
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{70 + len(order) * LINE}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for year in range(first, max(row.info.year for row in rows) + 1):
        elements.append(f'<text x="{30 + (year - first) * COLUMN}" y="26" fill="#777">{year}</text>')
    for row in order:
        elements += _edge(corners, row)
    for row in order:
        elements += _node(corners[row.info.title], row)
    return "\n".join([*elements, "</svg>"]) + "\n"


def _descendants(parent: str | None, rows: list[FamilyRow]) -> list[FamilyRow]:
    """Return the children of a family, each followed by its own descendants."""
    children = [row for row in rows if row.info.parent == parent]
    return [row for child in children for row in (child, *_descendants(child.info.title, rows))]


def _edge(corners: dict[str, tuple[int, int]], row: FamilyRow) -> list[str]:
    if row.info.parent is None:
        return []
    (x, y), (parent_x, parent_y) = corners[row.info.title], corners[row.info.parent]
    return [f'<path d="M{parent_x + 14} {parent_y + BOX[1]} V{y + BOX[1] // 2} H{x}" fill="none" stroke="#999"/>']


def _node(corner: tuple[int, int], row: FamilyRow) -> list[str]:
    x, y = corner
    colour = COLOURS[network_type(row.design).split(",")[0].split(" (")[0]]
    return [
        f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{colour}" stroke="#555"/>',
        f'<text x="{x + BOX[0] // 2}" y="{y + 20}" text-anchor="middle">{row.info.title}</text>',
    ]


def write() -> None:
    """Write the page and the family tree."""
    DOCS.joinpath("families.md").write_text(markdown(), encoding="utf-8")
    DOCS.joinpath("families.svg").write_text(svg(), encoding="utf-8")


if __name__ == "__main__":
    write()
