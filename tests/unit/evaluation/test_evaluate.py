"""Labels, tags and answers are measured while a network is trained, by measures that can choose the best."""

import json
import random

import pytest
import torch
from unit.training.run.test_end_to_end import ENCODER, TRAINING, sentences

import regard
from regard.evaluation.evaluate import MEASURES
from regard.metrics import task_metrics
from regard.tokenization.tokenizer_loader import load as load_tokenizer
from regard.training.run.run_dir import Folder, read_metrics

TAGS = {"dog": "I-animal", "cat": "I-animal", "far": "I-place", "near": "I-place"}


def conll(rows):
    """In IOB1, so that what is measured has been turned into BIO."""
    return "\n".join("".join(f"{word} {TAGS.get(word, 'O')}\n" for word in row) for row in rows)


def bio(row):
    before, found = None, []
    for word in row:
        kind = TAGS.get(word, "O")[2:]
        found.append("O" if not kind else f"{'I' if kind == before else 'B'}-{kind}")
        before = kind
    return found


def table(rows):
    return "text\tlabel\n" + "".join(f"{' '.join(row)}\t{'ab'['dog' in row]}\n" for row in rows)


def squad(rows):
    draw, paragraphs = random.Random(1), []
    for number, row in enumerate(rows):
        begin = draw.randrange(len(row))
        text, answer = " ".join(row), " ".join(row[begin : begin + 2])
        start = len(" ".join([*row[:begin], ""]))
        found = [{"text": answer, "answer_start": start}] if number % 4 else []
        asked = {"id": f"{len(rows)}-{number}", "question": "now", "answers": found, "is_impossible": not found}
        paragraphs.append({"context": text, "qas": [asked]})
    return json.dumps({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]})


def trained(folder, task, write, suffix, best):
    """A run of a few steps, its last measures, and its network."""
    rows = sentences(12, 5)
    (folder / f"t.{suffix}").write_text(write(sentences(60, 1)))
    (folder / f"v.{suffix}").write_text(write(rows))
    head = f'task = "{task}"\n[data]\ntrain = ["t.{suffix}"]\nvalid = ["v.{suffix}"]\n'
    (folder / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=8) + f'best = "{best}"\n')
    place = regard.train(folder / "recipe.toml", {"training.evaluate_every": 8}, folder=folder / "run")
    (line,) = [line for line in read_metrics(Folder(folder / "run").metrics) if "valid_loss" in line]
    found = {name.removeprefix("valid_"): value for name, value in line.items() if name.startswith("valid_")}
    assert tuple(found) == MEASURES[task]
    return rows, found, regard.load(place).network.eval(), load_tokenizer(place)


def alone(network, tokenizer, *texts):
    """What a network says of one text, and where its tokens stand."""
    row = tokenizer.encode(*texts)
    with torch.no_grad():
        return network(torch.tensor([row.ids]), segments=torch.tensor([row.segments])).logits[0], row


def test_tags(tmp_path, capsys):
    rows, found, network, tokenizer = trained(tmp_path, "tag", conll, "conll", "f1")
    names = json.loads((tmp_path / "run" / "best" / "regard.json").read_text())["labels"]
    said = []
    for row in rows:
        logits, encoded = alone(network, tokenizer, " ".join(row))
        starts = [len(" ".join([*row[:place], ""])) for place in range(len(row))]
        firsts = [next(p for p, (b, e) in enumerate(encoded.offsets) if b == start and e > b) for start in starts]
        said.append([names[int(logits[place].argmax())] for place in firsts])
    expected = task_metrics.of_entities([bio(row) for row in rows], said)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    shown = capsys.readouterr().err
    assert f"f1 {found['f1']:.4f}" in shown
    assert (
        f"    expected {'  '.join(f'{w}/{t}' for w, t in zip(rows[0], bio(rows[0]), strict=True) if t != 'O')}" in shown
    )


def test_labels(tmp_path, capsys):
    rows, found, network, tokenizer = trained(tmp_path, "classify", table, "tsv", "macro_f1")
    said = ["ab"[int(alone(network, tokenizer, " ".join(row))[0].argmax())] for row in rows]
    expected = task_metrics.of_labels(["ab"["dog" in row] for row in rows], said)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    shown = capsys.readouterr().err
    assert f"macro_f1 {found['macro_f1']:.4f}" in shown
    assert f"  {' '.join(rows[0])}\n    expected {'ab'['dog' in rows[0]]}\n    written  {said[0]}\n" in shown


def test_answers(tmp_path, capsys):
    rows, found, network, tokenizer = trained(tmp_path, "answer", squad, "json", "exact")
    truth = [
        [answer["text"] for answer in paragraph["qas"][0]["answers"]]
        for paragraph in json.loads(squad(rows))["data"][0]["paragraphs"]
    ]
    said = []
    for row in rows:
        context = " ".join(row)
        logits, encoded = alone(network, tokenizer, "now", context)
        inside = [place for place, side in enumerate(encoded.sides) if side == 1]
        spans = [(float(logits[b, 0] + logits[e, 1]), b, e) for b in inside for e in inside if b <= e]
        score, begin, end = max(spans)
        nothing = float(logits[0].sum()) > score
        said.append("" if nothing else context[encoded.offsets[begin][0] : encoded.offsets[end][1]])
    expected = task_metrics.of_answers(truth, said)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert f"exact {found['exact']:.4f}  f1 {found['f1']:.4f}" in capsys.readouterr().err


def test_tags_that_mark_no_entities_have_only_an_accuracy(tmp_path):
    tag = {"dog": "NOUN", "cat": "NOUN", "runs": "VERB"}
    text = "\n".join("".join(f"{word} {tag.get(word, 'X')}\n" for word in row) for row in sentences(30, 1))
    (tmp_path / "t.conll").write_text(text)
    head = 'task = "tag"\n[data]\ntrain = ["t.conll"]\nvalid = ["t.conll"]\n'
    (tmp_path / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=1))
    regard.train(tmp_path / "recipe.toml", folder=tmp_path / "run")
    last = read_metrics(Folder(tmp_path / "run").metrics)[-1]
    assert "valid_accuracy" in last
    assert "valid_f1" not in last


def test_a_measure_that_nobody_takes_is_told_before_anything_runs(tmp_path):
    (tmp_path / "t.tsv").write_text(table(sentences(10, 1)))
    head = 'task = "classify"\n[data]\ntrain = ["t.tsv"]\nvalid = ["t.tsv"]\n'
    (tmp_path / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=1) + 'best = "acuracy"\n')
    with pytest.raises(
        ValueError, match=r"measured by loss, accuracy, macro_f1, not 'acuracy' \(did you mean 'accuracy'"
    ):
        regard.train(tmp_path / "recipe.toml", folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


PLAIN = """
task = "{task}"
[data]
train = ["t.txt"]
valid = ["v.txt"]
"""
DECODER = ENCODER.replace("wordpiece", "words").replace("bert", "gpt2")


def plain(folder, task, network):
    """A run of one step on sentences, one on each line, and the first of them."""
    rows = [" ".join(row) for row in sentences(12, 5)]
    (folder / "t.txt").write_text("\n".join(" ".join(row) for row in sentences(60, 1)))
    (folder / "v.txt").write_text("\n".join(rows))
    (folder / "recipe.toml").write_text(PLAIN.format(task=task) + network + TRAINING.format(steps=1))
    best = regard.train(folder / "recipe.toml", folder=folder / "run")
    return rows[0], regard.load(best)


def test_texts_are_continued_for_a_person_to_look_at(tmp_path, capsys):
    text, model = plain(tmp_path, "generate", DECODER)
    ids = model.tokenizer.encode(text, special_tokens=False).ids
    given, expected = (model.tokenizer.decode(part) for part in (ids[: len(ids) // 2], ids[len(ids) // 2 :]))
    written = model.generate(given, limit=16)[0].text
    assert f"  {given}\n    expected {expected}\n    written  {written}\n" in capsys.readouterr().err


def test_hidden_words_are_shown_with_what_was_guessed(tmp_path, capsys):
    text, model = plain(tmp_path, "fill", ENCODER + "\n[objective]\nshare = 0.5\n")
    lines = capsys.readouterr().err.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("    expected"))
    given, expected, guessed = (
        lines[at + place].removeprefix(word) for place, word in ((-1, "  "), (0, "    expected "), (1, "    written  "))
    )
    assert "[MASK]" in given
    assert "[CLS]" not in given
    assert len(expected.split()) == len(guessed.split()) > 0
    assert all(word.removeprefix("##") in text for word in expected.split())
    row = torch.tensor(model.tokenizer.encode(given, read_special=True).ids)
    with torch.no_grad():
        said = model.network(row[None]).logits[0].argmax(dim=-1)
    masks = row == model.tokenizer.special.mask
    assert {model.tokenizer.decode([token]) for token in said[masks].tolist()} <= {*guessed.split()}
