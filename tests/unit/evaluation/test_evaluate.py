"""Metrics of labels, tags and answers during training, any of which can select the best checkpoint."""

import json
import random

import pytest
import torch
from unit.training.run.test_end_to_end import ENCODER, TRAINING, sentences

import regard
from regard.data.formats import Scheme
from regard.metrics.answer_metrics import best_no_answer_threshold
from regard.metrics.entity_metrics import entity_metrics
from regard.metrics.label_metrics import classification_metrics
from regard.tasks.registry import TASKS
from regard.tasks.tag_decoding import allowed_transitions, decode_tags
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.training.run.run_dir import RunDir, read_metrics

TAGS = {"dog": "I-animal", "cat": "I-animal", "far": "I-place", "near": "I-place"}


def conll(rows):
    """Tags in IOB1, so that the evaluated tags have been converted to BIO."""
    return "\n".join("".join(f"{word} {TAGS.get(word, 'O')}\n" for word in row) for row in rows)


def bio(row):
    previous_type, tags = None, []
    for word in row:
        entity_type = TAGS.get(word, "O")[2:]
        tags.append("O" if not entity_type else f"{'I' if entity_type == previous_type else 'B'}-{entity_type}")
        previous_type = entity_type
    return tags


def table(rows):
    return "text\tlabel\n" + "".join(f"{' '.join(row)}\t{'ab'['dog' in row]}\n" for row in rows)


def squad(rows):
    rng, paragraphs = random.Random(1), []
    for index, row in enumerate(rows):
        first = rng.randrange(len(row))
        text, answer = " ".join(row), " ".join(row[first : first + 2])
        start = len(" ".join([*row[:first], ""]))
        answers = [{"text": answer, "answer_start": start}] if index % 4 else []
        qa = {"id": f"{len(rows)}-{index}", "question": "now", "answers": answers, "is_impossible": not answers}
        paragraphs.append({"context": text, "qas": [qa]})
    return json.dumps({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]})


def trained(folder, task, write, suffix, best):
    """Train for a few steps. Return the validation texts, the last metrics, the network and its tokenizer."""
    rows = sentences(12, 5)
    (folder / f"t.{suffix}").write_text(write(sentences(60, 1)))
    (folder / f"v.{suffix}").write_text(write(rows))
    head = f'task = "{task}"\n[data]\ntrain = ["t.{suffix}"]\nvalid = ["v.{suffix}"]\n'
    (folder / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=8) + f'best_metric = "{best}"\n')
    best_folder = regard.train(folder / "recipe.toml", {"training.evaluate_every": 8}, output=folder / "run")
    (line,) = [line for line in read_metrics(RunDir(folder / "run").metrics) if "valid_loss" in line]
    metrics = {name.removeprefix("valid_"): value for name, value in line.items() if name.startswith("valid_")}
    assert tuple(metrics) == TASKS[task].metrics.names
    return rows, metrics, regard.load(best_folder).network.eval(), load_tokenizer(best_folder)


def predict_one(network, tokenizer, *texts):
    """The logits of a single text or pair, and its encoding."""
    encoding = tokenizer.encode(*texts)
    with torch.no_grad():
        return network(torch.tensor([encoding.ids]), segments=torch.tensor([encoding.segments])).logits[0], encoding


def test_tags(tmp_path, capsys):
    rows, metrics, network, tokenizer = trained(tmp_path, "tag", conll, "conll", "f1")
    names = json.loads((tmp_path / "run" / "best" / "regard.json").read_text())["labels"]
    allowed = allowed_transitions(names, Scheme.BIO)
    predictions = []
    for row in rows:
        logits, encoding = predict_one(network, tokenizer, " ".join(row))
        starts = [len(" ".join([*row[:index], ""])) for index in range(len(row))]
        firsts = [next(p for p, (b, e) in enumerate(encoding.offsets) if b == start and e > b) for start in starts]
        scores = logits[firsts].double().log_softmax(dim=-1).numpy()
        predictions.append([names[index] for index in decode_tags(scores, allowed)])
    expected = entity_metrics([bio(row) for row in rows], predictions)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    printed = capsys.readouterr().err
    assert f"f1 {metrics['f1']:.4f}" in printed
    entities = "  ".join(f"{word}/{tag}" for word, tag in zip(rows[0], bio(rows[0]), strict=True) if tag != "O")
    assert f"    reference {entities}" in printed


def test_labels(tmp_path, capsys):
    rows, metrics, network, tokenizer = trained(tmp_path, "classify", table, "tsv", "macro_f1")
    predictions = ["ab"[int(predict_one(network, tokenizer, " ".join(row))[0].argmax())] for row in rows]
    expected = classification_metrics(["ab"["dog" in row] for row in rows], predictions)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    printed = capsys.readouterr().err
    assert f"macro_f1 {metrics['macro_f1']:.4f}" in printed
    label = "ab"["dog" in rows[0]]
    assert f"  {' '.join(rows[0])}\n    reference {label}\n    output    {predictions[0]}\t" in printed
    stored = json.loads((tmp_path / "run" / "best" / "regard.json").read_text())
    assert stored["problem"] == "single_label"
    assert 0.05 <= stored["temperature"] <= 20


def test_answers(tmp_path, capsys):
    rows, metrics, network, tokenizer = trained(tmp_path, "answer", squad, "json", "exact_match")
    references = [
        [answer["text"] for answer in paragraph["qas"][0]["answers"]]
        for paragraph in json.loads(squad(rows))["data"][0]["paragraphs"]
    ]
    predictions, margins = [], []
    for row in rows:
        context = " ".join(row)
        logits, encoding = predict_one(network, tokenizer, "now", context)
        inside = [position for position, text in enumerate(encoding.sequence_ids) if text == 1]
        spans = [(float(logits[b, 0] + logits[e, 1]), b, e) for b in inside for e in inside if b <= e]
        score, first, last = max(spans)
        margins.append(float(logits[0].sum()) - score)
        predictions.append(context[encoding.offsets[first][0] : encoding.offsets[last][1]])
    best = best_no_answer_threshold(references, predictions, margins)
    assert {name: metrics[name] for name in best.metrics} == pytest.approx(best.metrics)
    stored = json.loads((tmp_path / "run" / "best" / "regard.json").read_text())
    assert stored["no_answer_threshold"] == pytest.approx(best.threshold, abs=1e-4)
    assert f"exact_match {metrics['exact_match']:.4f}  f1 {metrics['f1']:.4f}" in capsys.readouterr().err


def test_tags_that_mark_no_entities_have_only_an_accuracy(tmp_path):
    tag = {"dog": "NOUN", "cat": "NOUN", "runs": "VERB"}
    text = "\n".join("".join(f"{word} {tag.get(word, 'X')}\n" for word in row) for row in sentences(30, 1))
    (tmp_path / "t.conll").write_text(text)
    head = 'task = "tag"\n[data]\ntrain = ["t.conll"]\nvalid = ["t.conll"]\n'
    (tmp_path / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=1))
    regard.train(tmp_path / "recipe.toml", output=tmp_path / "run")
    last = read_metrics(RunDir(tmp_path / "run").metrics)[-1]
    assert "valid_accuracy" in last
    assert "valid_f1" not in last


def test_a_measure_that_nobody_takes_is_told_before_anything_runs(tmp_path):
    (tmp_path / "t.tsv").write_text(table(sentences(10, 1)))
    head = 'task = "classify"\n[data]\ntrain = ["t.tsv"]\nvalid = ["t.tsv"]\n'
    (tmp_path / "recipe.toml").write_text(head + ENCODER + TRAINING.format(steps=1) + 'best_metric = "acuracy"\n')
    message = r"unknown metric 'acuracy' .*\(did you mean 'accuracy'\?\); available: loss, accuracy, macro_f1"
    with pytest.raises(ValueError, match=message):
        regard.train(tmp_path / "recipe.toml", output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


PLAIN = """
task = "{task}"
[data]
train = ["t.txt"]
valid = ["v.txt"]
"""
DECODER = ENCODER.replace("wordpiece", "words").replace("bert", "gpt2")


def plain(folder, task, network):
    """Train one step on sentences, one per line. Return the first validation sentence and the model."""
    rows = [" ".join(row) for row in sentences(12, 5)]
    (folder / "t.txt").write_text("\n".join(" ".join(row) for row in sentences(60, 1)))
    (folder / "v.txt").write_text("\n".join(rows))
    (folder / "recipe.toml").write_text(PLAIN.format(task=task) + network + TRAINING.format(steps=1))
    best = regard.train(folder / "recipe.toml", output=folder / "run")
    return rows[0], regard.load(best)


def test_texts_are_continued_for_a_person_to_look_at(tmp_path, capsys):
    text, model = plain(tmp_path, "generate", DECODER)
    ids = model.tokenizer.encode(text, add_special_tokens=False).ids
    prompt, reference = (model.tokenizer.decode(half) for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]))
    output = model.generate(prompt, max_new_tokens=16).text
    assert f"  {prompt}\n    reference {reference}\n    output    {output}\n" in capsys.readouterr().err


def test_hidden_words_are_shown_with_what_was_guessed(tmp_path, capsys):
    text, model = plain(tmp_path, "fill", ENCODER + "\n[objective]\nmask_probability = 0.5\n")
    lines = capsys.readouterr().err.splitlines()
    index = next(index for index, line in enumerate(lines) if line.startswith("    reference"))
    masked = lines[index - 1].removeprefix("  ")
    reference, output = lines[index].removeprefix("    reference "), lines[index + 1].removeprefix("    output    ")
    assert "[MASK]" in masked
    assert "[CLS]" not in masked
    assert len(reference.split()) == len(output.split()) > 0
    assert all(word.removeprefix("##") in text for word in reference.split())
    ids = torch.tensor(model.tokenizer.encode(masked, parse_special_tokens=True).ids)
    with torch.no_grad():
        predictions = model.network(ids[None]).logits[0].argmax(dim=-1)
    masks = ids == model.tokenizer.special_ids.mask
    assert {model.tokenizer.decode([token]) for token in predictions[masks].tolist()} <= {*output.split()}
