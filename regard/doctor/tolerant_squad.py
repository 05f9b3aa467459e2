"""SQuAD's JSON, question by question, whatever is wrong with some of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.doctor import finding_kinds
from regard.doctor.text_file import Written
from regard.doctor.tolerant_reader import Reading, Rows, Split


def read_squad(reading: Reading, split: Split, file: Path) -> Iterator[Rows]:
    """All questions of a file. The line of a question is that of its id."""
    texts = [text for block in reading.open(file, Written.ESCAPED).blocks(reading.tell) for text in block.texts]
    whole = "\n".join(texts)
    try:
        found = json.loads(whole)
        questions = list(_questions(found))
    except json.JSONDecodeError as error:
        said = f"this is no JSON ({error.msg}, character {error.colno} of the line)"
        reading.ledger.say(finding_kinds.BROKEN_JSON, file, said, lines=[error.lineno], remedy="write it again as JSON")
        return
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError):
        if texts:
            reading.ledger.say(finding_kinds.BAD_DATASET, file, finding_kinds.BAD_DATASET.said, lines=[1])
        return
    if questions:
        fields = {name: [one[name] for one in questions] for name in questions[0]}
        rows = Rows(split, _lines(whole, fields["id"]), fields, dict.fromkeys(fields, file))
        rows.look(reading.ledger)
        yield rows


def _questions(found: Any) -> Iterator[dict[str, Any]]:
    for article in found["data"]:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                answers = [(str(one["text"]), one.get("answer_start")) for one in asked.get("answers", ())]
                yield {
                    "question": str(asked["question"]),
                    "context": str(paragraph["context"]),
                    "answers": answers,
                    "id": str(asked.get("id", "")),
                    "impossible": asked.get("is_impossible"),
                }


def _lines(whole: str, ids: list[str]) -> list[int]:
    """The line on which each id stands, in the order of the file."""
    lines, place, line = [], 0, 1
    for name in ids:
        forms = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
        found = min((at for form in forms if (at := whole.find(form, place)) >= 0), default=-1)
        if found >= 0:
            line += whole.count("\n", place, found)
            place = found + 1
        lines.append(line)
    return lines
