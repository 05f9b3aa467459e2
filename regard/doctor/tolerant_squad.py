"""Tolerant reader of SQuAD files: invalid questions become findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.doctor import finding_kinds
from regard.doctor.text_file import Escaping
from regard.doctor.tolerant_reader import RecordBatch, Split, TolerantReader


def read_squad_tolerant(reader: TolerantReader, split: Split, file: Path) -> Iterator[RecordBatch]:
    """Yield all questions of a file as one batch. The line of a question is that of its id."""
    texts = [text for block in reader.open(file, Escaping.JSON).blocks(reader.on_bytes_read) for text in block.texts]
    document = "\n".join(texts)
    try:
        questions = list(_questions(json.loads(document)))
    except json.JSONDecodeError as error:
        message = f"invalid JSON ({error.msg}, column {error.colno})"
        reader.collector.add_file(
            finding_kinds.BROKEN_JSON, file, message, lines=[error.lineno], remedy="correct the JSON syntax"
        )
        return
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError):
        if texts:
            reader.collector.add_file(finding_kinds.BAD_DATASET, file, finding_kinds.BAD_DATASET.message, lines=[1])
        return
    if questions:
        fields = {name: [question[name] for question in questions] for name in questions[0]}
        batch = RecordBatch(split, _find_lines(document, fields["id"]), fields, dict.fromkeys(fields, file))
        batch.check_characters(reader.collector)
        yield batch


def _questions(dataset: Any) -> Iterator[dict[str, Any]]:
    for article in dataset["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = [(str(answer["text"]), answer.get("answer_start")) for answer in question.get("answers", ())]
                yield {
                    "question": str(question["question"]),
                    "context": str(paragraph["context"]),
                    "answers": answers,
                    "id": str(question.get("id", "")),
                    "impossible": question.get("is_impossible"),
                }


def _find_lines(document: str, ids: list[str]) -> list[int]:
    """Return the line of each id, in the order of the file."""
    lines, position, line = [], 0, 1
    for id_ in ids:
        literals = {json.dumps(id_), json.dumps(id_, ensure_ascii=False)}
        matches = (document.find(literal, position) for literal in literals)
        match = min((start for start in matches if start >= 0), default=-1)
        if match >= 0:
            line += document.count("\n", position, match)
            position = match + 1
        lines.append(line)
    return lines
