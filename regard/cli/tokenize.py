"""`regard tokenize`: how a text is cut into tokens, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.tokenization.tokenizer import Encoded

TOGETHER = 1000
"""Texts that are encoded at once."""
GROUNDS = ("on #264653", "on #7a4419")
"""Tokens stand on these in turn."""


def tokenize(
    model: Annotated[str, typer.Argument(help="A model's folder, a tokenizer's folder, or a file (tokenizer.json).")],
    text: Annotated[str, typer.Argument(help="A text, a file with one text in each line, or - for input.")] = "-",
    pair: Annotated[str | None, typer.Option(help="A second text, to be read together with the first.")] = None,
    special: Annotated[bool, typer.Option("--special/--no-special", help="Add the model's special tokens.")] = True,
    read_special: Annotated[
        bool, typer.Option("--read-special", help="Special tokens that are written in the text are special, not text.")
    ] = False,
    language: Annotated[str | None, typer.Option(help="The language's code, for models that know several.")] = None,
    control: Annotated[str | None, typer.Option(help="The control code that the text begins with (CTRL).")] = None,
    target: Annotated[bool, typer.Option("--target", help="Use the target side's tokenizer (Marian).")] = False,
    decode: Annotated[bool, typer.Option("--decode", help="The other way: from ids to text.")] = False,
    family: Annotated[str | None, typer.Option(help="The model's family, where it cannot be told from files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each text.")] = False,
) -> None:
    """Show tokens, ids and places of TEXT, as the tokenizer in MODEL cuts it."""
    from regard.tokenization.tokenizer_loader import load

    tokenizer = load(model, family=family)
    tokenizer = tokenizer.target if target else tokenizer
    lines = _lines(text)
    if decode:
        for line in lines:
            _print_text(tokenizer.decode(_ids(line), keep_special=special), as_json)
        return
    show = _as_json if as_json else _in_colour() if sys.stdout.isatty() else _in_columns
    while batch := list(islice(lines, TOGETHER)):
        rows = tokenizer.encode_many(
            batch,
            None if pair is None else [pair] * len(batch),
            special_tokens=special,
            read_special=read_special,
            language=language,
            control=control,
        )
        for line, row in zip(batch, rows, strict=True):
            show(line, pair, row)


def _lines(text: str) -> Iterator[str]:
    """The text itself, the lines of the file of that name, or those of standard input."""
    from regard.tokenization.text_files import decode, lines

    if text == "-":
        for number, line in enumerate(sys.stdin.buffer, 1):
            yield decode(line, "standard input", number).rstrip("\r\n")
    elif _is_file(text):
        yield from (line for _, line in lines(text))
    else:
        yield text


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # too long for a name
        return False
    except ValueError:  # a zero character
        return False


def _ids(line: str) -> list[int]:
    words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is no id: expected whole numbers, such as 101 2448 102")
    return [int(word) for word in words]


def _print_text(text: str, as_json: bool) -> None:
    sys.stdout.write((json.dumps({"text": text}, ensure_ascii=False) if as_json else text) + "\n")


def _as_json(text: str, pair: str | None, row: Encoded) -> None:
    both: dict[str, Any] = {"text": text} if pair is None else {"text": text, "pair": pair}
    lists = dict(tokens=row.tokens, ids=row.ids, offsets=row.offsets, segments=row.segments, special=row.special)
    sys.stdout.write(json.dumps(both | lists, ensure_ascii=False) + "\n")


def _in_columns(text: str, pair: str | None, row: Encoded) -> None:
    """Token, id, first character and end, and what stands there in the text; an empty line after each text."""
    for token, number, (first, end), side in zip(row.tokens, row.ids, row.offsets, row.sides, strict=True):
        source = "" if side is None else json.dumps((pair or "" if side else text)[first:end], ensure_ascii=False)
        place = "\t" if side is None else f"{first}\t{end}"
        sys.stdout.write(f"{_visible(token)}\t{number}\t{place}\t{source}\n")
    sys.stdout.write("\n")


def _visible(token: str) -> str:
    """A token in one line: a vocabulary of characters has line ends and tabs."""
    return token if token.isprintable() else json.dumps(token, ensure_ascii=False)[1:-1]


def _in_colour() -> Any:
    """A function that prints the text with its tokens on grounds in turn, then the ids, then the columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)

    def show(text: str, pair: str | None, row: Encoded) -> None:
        for side, whole in enumerate([text] if pair is None else [text, pair]):
            line = Text(whole)
            for place, (first, end) in enumerate(row.offsets):
                if row.sides[place] == side:
                    line.stylize(GROUNDS[place % 2], first, end)
            console.print(line)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name in ("token", "id", "from", "to"):
            table.add_column(name, justify="left" if name == "token" else "right")
        for place, (token, number, (first, end)) in enumerate(zip(row.tokens, row.ids, row.offsets, strict=True)):
            added = row.sides[place] is None
            told = Text(_visible(token), style="dim italic" if added else GROUNDS[place % 2])
            table.add_row(told, str(number), *(("", "") if added else (str(first), str(end))))
        console.print(table)
        console.print(f"[dim]{len(row)} tokens[/dim]\n")

    return show
