"""classify: labels, several labels and scores as transformers computes them, temperature and long texts."""

import json

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from unit.tasks import encoders
from unit.tokenization import vocabularies

from regard.tasks.temperature import fit_temperature

LABELS = ("bad", "good", "so-so")
PAIR = ("the small dog", "runs along the beach and the man sees it")
BERT = "BertForSequenceClassification"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoders.encoder(tmp_path_factory.mktemp("bert"), BERT, labels=LABELS, max_position_embeddings=64)


@pytest.fixture(scope="module")
def model(folder):
    return encoders.opened(folder)


def logits_of(folder, architecture, encoding):
    theirs = getattr(transformers, architecture).from_pretrained(folder, dtype=torch.float64).eval()
    segments = {"token_type_ids": torch.tensor([encoding.segments])} if "Bert" in architecture else {}
    if architecture.startswith(("Distil", "Roberta")):
        segments = {}
    with torch.no_grad():
        return theirs(torch.tensor([encoding.ids]), **segments).logits[0]


@pytest.mark.parametrize(
    ("architecture", "vocabulary"),
    [
        (BERT, vocabularies.bert),
        ("RobertaForSequenceClassification", vocabularies.roberta),
        ("DistilBertForSequenceClassification", vocabularies.bert),
    ],
)
def test_probabilities_of_transformers(tmp_path, architecture, vocabulary):
    folder = encoders.encoder(tmp_path, architecture, vocabulary, labels=LABELS, max_position_embeddings=64)
    model = encoders.opened(folder)
    for text in (*encoders.TEXTS, PAIR):
        encoding = model.tokenizer.encode(text) if isinstance(text, str) else model.tokenizer.encode(*text)
        probabilities = logits_of(folder, architecture, encoding).softmax(-1)
        result = model.classify(text)
        assert result.label == LABELS[int(probabilities.argmax())]
        assert result.labels == (result.label,)
        assert [result.scores[label] for label in LABELS] == pytest.approx(probabilities.tolist(), rel=1e-9)
        assert list(result.scores.values()) == sorted(result.scores.values(), reverse=True)


def test_the_pipeline_of_transformers(folder, model):
    pipeline = transformers.pipeline(
        "text-classification",
        model=transformers.BertForSequenceClassification.from_pretrained(folder),
        tokenizer=transformers.BertTokenizerFast(str(folder / "vocab.txt")),
        top_k=None,
    )
    for result, expected in zip(model.classify(encoders.TEXTS), pipeline(encoders.TEXTS), strict=True):
        assert list(result.scores) == [each["label"] for each in expected]
        assert list(result.scores.values()) == pytest.approx([each["score"] for each in expected], abs=1e-4)


@pytest.mark.parametrize("problem", ["multi_label", "regression"])
def test_several_labels_and_scores_as_the_pipeline_computes_them(tmp_path, problem):
    labels = LABELS if problem == "multi_label" else ("score",)
    folder = encoders.encoder(tmp_path, BERT, labels=labels, info={"problem": problem}, max_position_embeddings=64)
    assert json.loads((folder / "config.json").read_text())["problem_type"].startswith(problem)
    (folder / "regard.json").unlink()  # what config.json says is enough
    model = encoders.opened(folder)
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    pipeline = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer, top_k=None)
    for result, expected in zip(model.classify(encoders.TEXTS), pipeline(encoders.TEXTS), strict=True):
        scores = {each["label"]: each["score"] for each in expected}
        if problem == "regression":
            assert result.value == pytest.approx(scores["score"], abs=1e-4)
            assert (result.label, result.labels, result.scores) == ("", (), {})
            assert result.as_lines() == [f"{result.value:.4f}"]
            continue
        assert dict(result.scores) == pytest.approx(scores, abs=1e-4)
        assert set(result.labels) == {label for label, score in result.scores.items() if score >= 0.5}
    if problem == "multi_label":
        assert all(len(result.labels) == 3 for result in model.classify(encoders.TEXTS, threshold=0.0))


def test_a_pair_is_one_input_and_a_list_gives_a_list(model):
    assert model.classify(PAIR).label
    assert len(model.classify([PAIR, "a", PAIR])) == 3


@pytest.mark.parametrize("batch_tokens", [1, 50, 4096])
def test_a_batch_gives_what_each_text_gives(model, batch_tokens):
    texts = [*encoders.TEXTS, PAIR, "the dog " * 90, ""]
    found = model.classify(texts, batch_tokens=batch_tokens)
    for text, result in zip(texts, found, strict=True):
        single = model.classify(text)
        assert (result.label, result.truncated) == (single.label, single.truncated)
        assert dict(result.scores) == pytest.approx(dict(single.scores), rel=1e-6)


def test_a_long_text_is_truncated_or_read_in_windows(model):
    text = "the small dog runs along the beach and Anna sees it. " * 12
    first, mean = model.classify(text), model.classify(text, long="mean")
    ids = model.tokenizer.encode(text).ids
    assert (first.truncated, first.windows) == (len(ids) - 64, 1)
    assert mean.truncated == 0
    assert mean.windows == -(-(len(ids) - 2) // 62)
    inner, each = ids[1:-1], []
    for start in range(0, len(inner), 62):
        tokens = torch.tensor([[ids[0], *inner[start : start + 62], ids[-1]]])
        with torch.no_grad():
            each.append(model.network(tokens).logits[0].softmax(-1))
    expected = torch.stack(each).mean(dim=0).tolist()
    assert [mean.scores[label] for label in LABELS] == pytest.approx(expected)
    short = model.classify("the dog", long="mean")
    assert (short.windows, dict(short.scores)) == (1, dict(model.classify("the dog").scores))
    pair = model.classify(("the dog", text), long="mean")
    assert pair.windows > 1


def test_temperature_of_the_folder(tmp_path, model):
    folder = encoders.encoder(tmp_path, BERT, labels=LABELS, info={"temperature": 2.0}, max_position_embeddings=64)
    for result, plain in zip(
        encoders.opened(folder).classify(encoders.TEXTS), model.classify(encoders.TEXTS), strict=True
    ):
        powers = {label: score**0.5 for label, score in plain.scores.items()}
        total = sum(powers.values())
        assert dict(result.scores) == pytest.approx({label: score / total for label, score in powers.items()})


@given(st.integers(0, 2**31), st.floats(0.2, 5))
def test_the_fitted_temperature_is_the_best(seed, true_temperature):
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(300, 3)) * 2
    scaled = np.exp(logits / true_temperature)
    labels = [draw.choice(3, p=row / row.sum()) for row in scaled]
    probabilities = torch.tensor(logits).softmax(-1)
    rows = [dict(zip("abc", row, strict=True)) for row in probabilities.tolist()]
    found = fit_temperature(rows, ["abc"[label] for label in labels])

    def loss(temperature):
        log_probabilities = torch.tensor(logits / temperature).log_softmax(-1)
        return -float(log_probabilities[range(300), labels].mean())

    grid = np.exp(np.linspace(np.log(0.05), np.log(20), 400))
    assert loss(found) <= min(map(loss, grid)) + 1e-6


def test_without_examples_the_temperature_is_one():
    assert fit_temperature([], []) == 1.0


def test_int8_is_close(folder, model):
    int8 = encoders.opened(folder, precision="int8").classify(encoders.TEXTS)
    for result, exact in zip(int8, model.classify(encoders.TEXTS), strict=True):
        assert max(abs(result.scores[label] - exact.scores[label]) for label in LABELS) < 0.1


def test_more_labels_than_logits(folder):
    model = encoders.opened(folder)
    model.__dict__["labels"] = (*LABELS, "other")
    with pytest.raises(ValueError, match="4 label names for 3 logits"):
        model.classify("a")
    with pytest.raises(ValueError, match="long is 'last'; expected one of 'first', 'mean'"):
        encoders.opened(folder).classify("a", long="last")
