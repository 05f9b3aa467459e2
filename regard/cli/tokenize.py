"""`regard tokenize`: encode texts to tokens, or decode ids to text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.until_error import UntilError
from regard.terminal import escape_controls, unescaped

if TYPE_CHECKING:
    from regard.tokenization.tokenizer import Encoding

BATCH_SIZE = 1000
"""Number of texts that are encoded in one batch."""
TOKEN_COLORS = ("on #264653", "on #7a4419")
"""Background colors of successive tokens, alternating."""


def tokenize(
    model: Annotated[str, typer.Argument(help="Model folder, tokenizer folder, or a file (tokenizer.json).")],
    text: Annotated[str, typer.Argument(help="A text, a file with one text per line, or - for standard input.")] = "-",
    pair: Annotated[str | None, typer.Option(help="Second text of a text pair.")] = None,
    special: Annotated[
        bool, typer.Option("--special/--no-special", help="Add the special tokens that the model expects.")
    ] = True,
    read_special: Annotated[
        bool, typer.Option("--parse-special", help="Encode special tokens in the text as such, not as plain text.")
    ] = False,
    language: Annotated[str | None, typer.Option(help="Language code, for multilingual models.")] = None,
    control: Annotated[str | None, typer.Option(help="Control code to put first (CTRL).")] = None,
    target: Annotated[
        bool, typer.Option("--target", help="Use the tokenizer of the target language (Marian).")
    ] = False,
    decode: Annotated[bool, typer.Option("--decode", help="Decode: TEXT has token ids, the output is text.")] = False,
    family: Annotated[str | None, typer.Option(help="Model family, if it cannot be detected from the files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Show the tokens of TEXT, their ids and their character offsets, with the tokenizer in MODEL."""
    from regard.tokenization.tokenizer_loader import load_tokenizer

    tokenizer = load_tokenizer(model, family=family)
    tokenizer = tokenizer.target if target else tokenizer
    lines = UntilError(_lines(text))
    if decode:
        for line in lines:
            _print_text(tokenizer.decode(_ids(line), skip_special_tokens=not special), as_json)
        lines.raise_error()
        return
    show = _write_json if as_json else _in_color() if sys.stdout.isatty() else _write_columns
    while batch := list(islice(lines, BATCH_SIZE)):
        rows = tokenizer.encode_batch(
            batch,
            None if pair is None else [pair] * len(batch),
            add_special_tokens=special,
            parse_special_tokens=read_special,
            language=language,
            control=control,
        )
        for line, row in zip(batch, rows, strict=True):
            show(line, pair, row)
    lines.raise_error()


def _lines(text: str) -> Iterator[str]:
    """The lines of standard input or of the file called `text`; else the text itself."""
    from regard.tokenization.text_files import decode_line, limited_lines, read_lines

    if text == "-":
        for number, line in enumerate(limited_lines(sys.stdin.buffer, "standard input"), 1):
            yield decode_line(line, "standard input", number).rstrip("\r\n")
    elif _is_file(text):
        yield from (line for _, line in read_lines(text))
    else:
        yield text


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # the text is too long for a file name
        return False
    except ValueError:  # the text has a NUL character
        return False


def _ids(line: str) -> list[int]:
    words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
    invalid = [word for word in words if not word.isdecimal()]
    if invalid:
        raise typer.BadParameter(f"{invalid[0]!r} is not a token id: expected integers such as 101 2448 102")
    return [int(word) for word in words]


def _print_text(text: str, as_json: bool) -> None:
    sys.stdout.write((json.dumps({"text": text}, ensure_ascii=False) if as_json else text) + "\n")


def _write_json(text: str, pair: str | None, row: Encoding) -> None:
    texts: dict[str, Any] = {"text": text} if pair is None else {"text": text, "pair": pair}
    lists = dict(
        tokens=row.tokens, ids=row.ids, offsets=row.offsets, segments=row.segments, special=row.special_tokens_mask
    )
    sys.stdout.write(json.dumps(texts | lists, ensure_ascii=False) + "\n")


def _write_columns(text: str, pair: str | None, row: Encoding) -> None:
    """Write a line per token (token, id, start, end, the text between them), and an empty line after each text."""
    for token, id_, (start, end), sequence in zip(row.tokens, row.ids, row.offsets, row.sequence_ids, strict=True):
        source = (
            "" if sequence is None else json.dumps((pair or "" if sequence else text)[start:end], ensure_ascii=False)
        )
        offsets = "\t" if sequence is None else f"{start}\t{end}"
        sys.stdout.write(f"{_printable(token)}\t{id_}\t{offsets}\t{source}\n")
    sys.stdout.write("\n")


def _printable(token: str) -> str:
    """Escape unprintable characters: a character vocabulary has line breaks and tabs as tokens."""
    return token if token.isprintable() else json.dumps(token, ensure_ascii=False)[1:-1]


def _in_color() -> Any:
    """Return a function that prints a text with colored tokens, and then a table of the tokens."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=unescaped(sys.stdout), highlight=False)

    def show(text: str, pair: str | None, row: Encoding) -> None:
        for sequence, content in enumerate([text] if pair is None else [text, pair]):
            escaped = [escape_controls(character) for character in content]
            positions = [0, *accumulate(map(len, escaped))]
            line = Text("".join(escaped))
            for index, (start, end) in enumerate(row.offsets):
                if row.sequence_ids[index] == sequence:
                    line.stylize(TOKEN_COLORS[index % 2], positions[start], positions[end])
            console.print(line)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name in ("token", "id", "from", "to"):
            table.add_column(name, justify="left" if name == "token" else "right")
        for index, (token, id_, (start, end)) in enumerate(zip(row.tokens, row.ids, row.offsets, strict=True)):
            added = row.sequence_ids[index] is None
            cell = Text(_printable(token), style="dim italic" if added else TOKEN_COLORS[index % 2])
            table.add_row(cell, str(id_), *(("", "") if added else (str(start), str(end))))
        console.print(table)
        console.print(f"[dim]{len(row)} tokens[/dim]\n")

    return show
