"""Each task from a recipe to an answer: a small network learns what its data says, and is used from its folder."""

import json
import random

import pytest
import torch
from unit.training.run.test_end_to_end import ENCODER, lines, measures, sentences, write
from unit.training.tiny_data import WORDS

import regard
from regard.data.label_ids import split_labels
from regard.metrics.label_metrics import multi_label_metrics

ANIMALS = {"dog", "cat", "bird"}
PLACES = ["far", "near", "now"]


def head(task, suffix):
    return f'task = "{task}"\n[data]\ntrain = ["t.{suffix}"]\nvalid = ["v.{suffix}"]\n'


def stored(folder):
    return json.loads((folder / "regard.json").read_text())


def test_tag_finds_entities_and_their_offsets(tmp_path):
    def conll(rows):
        tags = {"dog": "B-animal", "cat": "B-animal", "far": "B-place", "near": "B-place"}
        return "\n".join("".join(f"{word} {tags.get(word, 'O')}\n" for word in row) for row in rows)

    path = write(
        tmp_path, head("tag", "conll") + ENCODER, t_conll=conll(sentences(150, 1)), v_conll=conll(sentences(30, 2))
    )
    model = regard.load(regard.train(path, output=tmp_path / "run"))
    text = "red dog runs far"
    found = [(entity.type, entity.text, text[entity.start : entity.end]) for entity in model.tag(text).entities]
    assert found == [("animal", "dog", "dog"), ("place", "far", "far")]
    assert measures(tmp_path / "run")[-1]["valid_f1"] > 0.9


def labels_of(row):
    return ",".join(name for name, words in (("animal", ANIMALS), ("place", PLACES)) if {*row} & {*words})


def test_classify_with_several_labels(tmp_path):
    def table(rows):
        return "text\tlabel\n" + "".join(f"{' '.join(row)}\t{labels_of(row) or 'none'}\n" for row in rows)

    objective = '[objective]\nkind = "multi_label"\n'
    path = write(
        tmp_path, head("classify", "tsv") + ENCODER + objective, steps=120,
        t_tsv=table(sentences(300, 1)), v_tsv=table(sentences(40, 2)),
    )  # fmt: skip
    best = regard.train(path, {"training.best_metric": "micro_f1"}, output=tmp_path / "run")
    micro_f1 = max(line["valid_micro_f1"] for line in measures(tmp_path / "run"))
    assert micro_f1 > 0.85
    assert (stored(best)["problem"], stored(best)["labels"]) == ("multi_label", ["animal", "none", "place"])
    rows = sentences(40, 2)
    results = regard.load(best).classify([" ".join(row) for row in rows])
    references = [split_labels(labels_of(row) or "none", ",") for row in rows]
    assert multi_label_metrics(references, [result.labels for result in results])["micro_f1"] == pytest.approx(micro_f1)


def test_classify_with_a_score(tmp_path):
    def table(rows):
        return "text\tlabel\n" + "".join(f"{' '.join(row)}\t{sum(word in ANIMALS for word in row)}\n" for row in rows)

    objective = '[objective]\nkind = "regression"\n'
    path = write(
        tmp_path, head("classify", "tsv") + ENCODER + objective, steps=160,
        t_tsv=table(sentences(300, 1)), v_tsv=table(sentences(40, 2)),
    )  # fmt: skip
    best = regard.train(path, {"training.best_metric": "spearman"}, output=tmp_path / "run")
    assert max(line["valid_spearman"] for line in measures(tmp_path / "run")) > 0.8
    low, high = regard.load(best).classify(["red blue runs far", "dog cat bird dog"])
    assert high.value - low.value > 1
    assert low.labels == ()


def test_the_temperature_makes_validation_data_more_likely(tmp_path):
    """A third of the labels is random, so that a network that learns them by heart is too sure of itself."""

    def table(count, seed):
        draw, rows = random.Random(seed), []
        for row in sentences(count, seed):
            label = draw.choice(["yes", "no"]) if draw.random() < 0.33 else "yes" if {*row} & ANIMALS else "no"
            rows.append(f"{' '.join(row)}\t{label}\n")
        return "text\tlabel\n" + "".join(rows)

    path = write(tmp_path, head("classify", "tsv") + ENCODER, steps=150, t_tsv=table(40, 1), v_tsv=table(80, 2))
    overrides = {"training.evaluate_every": 150, "training.save_every": 150}
    best = regard.train(path, overrides, output=tmp_path / "run")
    temperature = stored(best)["temperature"]
    assert temperature > 1.2
    rows = [line.split("\t") for line in table(80, 2).splitlines()[1:]]
    calibrated = regard.load(best)
    losses = []
    for model in (calibrated, without_temperature(best)):
        results = model.classify([text for text, _ in rows])
        scores = [result.scores[label] for result, (_, label) in zip(results, rows, strict=True)]
        losses.append(-float(torch.tensor(scores).log().mean()))
    assert losses[0] < losses[1]


def without_temperature(folder):
    model = regard.load(folder)
    model.__dict__["info"] = {key: value for key, value in model.info.items() if key != "temperature"}
    return model


def squad(count, seed, unanswerable=0.0):
    """Where something is: the one word of a place in the text."""
    draw, paragraphs = random.Random(seed), []
    for number in range(count):
        row = [draw.choice([word for word in WORDS if word not in PLACES]) for _ in range(draw.randint(2, 5))]
        place = draw.choice(PLACES[:2])
        answers = []
        if draw.random() >= unanswerable:
            row.insert(draw.randint(0, len(row)), place)
            answers = [{"text": place, "answer_start": " ".join(row).index(place)}]
        qa = {"id": f"{seed}-{number}", "question": "now", "answers": answers, "is_impossible": not answers}
        paragraphs.append({"context": " ".join(row), "qas": [qa]})
    return json.dumps({"version": "2.0", "data": [{"title": "", "paragraphs": paragraphs}]})


def test_answer_and_no_answer(tmp_path):
    path = write(
        tmp_path, head("answer", "json") + ENCODER, steps=120, t_json=squad(250, 1, 0.3), v_json=squad(50, 2, 0.3)
    )
    best = regard.train(path, {"training.best_metric": "f1"}, output=tmp_path / "run")
    assert measures(tmp_path / "run")[-1]["valid_f1"] > 0.85
    assert "no_answer_threshold" in stored(best)
    found = regard.load(best).answer([("now", "red dog far runs"), ("now", "red dog runs blue")])
    assert [answer.text for answer in found] == ["far", ""]
    assert (found[0].start, found[0].end) == (8, 11)


GENERATIVE = {
    "generative": '[network]\nfamily = "transformer"\nlayers = [1, 1]\nmodel_dim = 48\nheads = 4\ndropout = 0.0\n',
    "continuation": '[network]\nfamily = "llama"\nlayers = 2\nmodel_dim = 48\nheads = 4\nmax_length = 64\n',
}


@pytest.mark.parametrize("kind", list(GENERATIVE))
def test_generated_answers(tmp_path, kind):
    form = "{context} ? {question} :"
    recipe = (
        head("answer", "json")
        + '[tokenizer]\nkind = "words"\nsize = 40\n'
        + GENERATIVE[kind]
        + f'[objective]\nkind = "{kind}"\nformat = "{form}"\nno_answer = "red"\n'
    )
    path = write(tmp_path, recipe, steps=240, t_json=squad(300, 1, 0.2), v_json=squad(40, 2, 0.2))
    overrides = {"training.batch_tokens": 512, "training.evaluate_every": 80, "training.best_metric": "f1"}
    best = regard.train(path, overrides, output=tmp_path / "run")
    assert max(line["valid_f1"] for line in measures(tmp_path / "run")) > 0.75  # always the same answer: 0.4
    assert stored(best)["answer_format"] == {"input": form, "no_answer": "red"}
    answer = regard.load(best).answer(("now", "dog far runs"), max_answer_length=3)
    assert answer.text in ("far", "near", "")
    assert 0 < answer.score <= 1


def test_fill_proposes_the_neighbour(tmp_path):
    draw = random.Random(1)
    rows = [[f"{side}{number}" for number in draw.sample(range(12), 6) for side in "ab"] for _ in range(500)]
    recipe = head("fill", "txt") + (
        '[tokenizer]\nkind = "words"\nsize = 60\n'
        '[network]\nfamily = "roformer"\nlayers = 2\nmodel_dim = 48\nheads = 2\ndropout = 0.0\nmax_length = 20\n'
    )
    path = write(tmp_path, recipe, steps=120, t_txt=lines(rows[:450]), v_txt=lines(rows[450:]))
    best = regard.train(path, {"training.batch_tokens": 1024, "training.evaluate_every": 60}, output=tmp_path / "run")
    last = measures(tmp_path / "run")[-1]
    assert last["valid_top5_accuracy"] >= last["valid_accuracy"] > 0.5
    result = regard.load(best).fill("a3 b3 a11 [MASK] a5 b5")
    assert result.text == "a3 b3 a11 b11 a5 b5"
    assert result.proposals[0][0][1] > 0.5


def test_a_prefix_of_the_recipe_is_used_by_the_model(tmp_path):
    rows = sentences(80, 1)
    text = "source\ttarget\n" + "".join(f"{' '.join(row)}\t{row[0]}\n" for row in rows)
    recipe = head("summarize", "tsv") + (
        '[tokenizer]\nkind = "words"\nsize = 40\n'
        '[network]\nfamily = "transformer"\nlayers = [1, 1]\nmodel_dim = 32\nheads = 2\ndropout = 0.0\n'
        '[objective]\nprefix = "first : "\n'
    )
    path = write(tmp_path, recipe, steps=4, t_tsv=text, v_tsv=text)
    overrides = {"training.evaluate_every": 4, "training.best_metric": "rouge1"}
    best = regard.train(path, overrides, output=tmp_path / "run")
    assert stored(best)["prompts"] == {"summarize": "first : "}
    model = regard.load(best)
    text = "red dog"
    assert model.summarize(text).text == model.translate(text, prefix="first : ").text
    assert "valid_rougeLsum" in measures(tmp_path / "run")[-1]
