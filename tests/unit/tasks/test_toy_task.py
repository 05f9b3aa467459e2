"""A tenth task, declared here alone: its method, command, recipe and evaluation come from the declaration."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.main import make_app
from regard.data.example import LabeledText
from regard.tasks.classifier import Classifier
from regard.tasks.classify import ClassifyOptions, labeled_text_encoder
from regard.tasks.inputs import TEXT
from regard.tasks.options import option
from regard.tasks.registry import TASKS
from regard.training.task import Metrics, Task
from regard.transformer.interface import Predicts, Reads


@dataclass(frozen=True, kw_only=True)
class ShoutOptions:
    """Options of shouting."""

    volume: int = option(1, at_least=1)
    """Number of exclamation marks."""
    whisper: bool = False
    """Do not use capitals."""


@dataclass(frozen=True, kw_only=True)
class Shout:
    """The label of a text, said aloud."""

    said: str
    truncated: int = 0

    def as_json(self):
        return {"said": self.said}

    def as_lines(self) -> Sequence[str]:
        return [self.said]


class Shouter:
    """Says the label of a text aloud."""

    def __init__(self, model, options):
        self.classifier = Classifier(model.network, model.tokenizer, model.labels, model.info, ClassifyOptions())
        self.options = options

    def run(self, inputs, *, buffer_size=512):
        for result in self.classifier.run(inputs, buffer_size=buffer_size):
            label = result.label if self.options.whisper else result.label.upper()
            yield Shout(said=label + "!" * self.options.volume)


def accuracy(references, results):
    """Compute the share of texts whose label is said."""
    correct = [said.lower() == f"{label}!" for label, said in zip(references, results, strict=True)]
    return {"accuracy": sum(correct) / len(correct)}


SHOUT = Task(
    name="shout",
    summary="Say the label of TEXT aloud.",
    input=TEXT,
    options=ShoutOptions,
    result=Shout,
    prepare=Shouter,
    example=LabeledText,
    reads=frozenset({Reads.TOKENS}),
    predicts=frozenset({Predicts.LABEL}),
    architectures=("ForSequenceClassification",),
    objectives=("classify",),
    encoder=labeled_text_encoder,
    input_of=lambda example: example.text,
    has_labels=True,
    metrics=Metrics(
        names=("loss", "accuracy"),
        compute=accuracy,
        reference_of=lambda example: str(example.label),
        prediction_of=lambda result: result.said,
    ),
)

RECIPE = """
task = "shout"
[data]
train = ["train.tsv"]
valid = ["train.tsv"]
[tokenizer]
kind = "words"
[network]
family = "bert"
layers = 1
model_dim = 16
heads = 2
inner_dim = 32
max_length = 16
dropout = 0.0
[training]
batch_tokens = 128
steps = 60
evaluate_every = 30
optimizer = { kind = "adamw", lr = 2e-2 }
best_metric = "accuracy"
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of the tenth task, trained by its recipe as `regard train` does."""
    folder = tmp_path_factory.mktemp("shout")
    rows = [
        f"the {animal} {verb}\t{animal}" for animal in ("dog", "cat") for verb in ("runs", "sits", "eats", "sleeps")
    ]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows, ""]))
    (folder / "recipe.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "shout", SHOUT)
        yield folder, regard.train(folder / "recipe.toml", output=folder / "run")


@pytest.fixture
def app(trained):
    return make_app(TASKS.values())


def run(app, *words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_its_recipe_trains_a_model(trained):
    folder, best = trained
    metrics = (folder / "run" / "metrics.jsonl").read_text()
    assert '"valid_accuracy": 1.0' in metrics
    assert regard.load(best).shout("the dog runs").said == "DOG!"


def test_its_method(trained):
    _, best = trained
    model = regard.load(best)
    assert [result.said for result in model.shout(["the cat sits", "the dog eats"], volume=2)] == ["CAT!!", "DOG!!"]
    with pytest.raises(TypeError, match="loudness"):
        model.shout("the cat sits", loudness=2)


def test_its_command(trained, app):
    _, best = trained
    result = run(app, "shout", best, "the cat sits", "--volume", 3, "--whisper", "--json")
    assert result.exit_code == 0
    assert result.stdout == '{"said": "cat!!!"}\n'
    wrong = run(app, "shout", best, "the cat sits", "--volume", 0)
    assert wrong.exit_code == 2


def test_its_help(app):
    text = " ".join(run(app, "shout", "--help").stdout.split())
    for words in ("Say the label of TEXT aloud.", "--volume", "Number of exclamation marks. [1]", "--whisper",
                  "Do not use capitals.", "--json"):  # fmt: skip
        assert words in text
    assert "shout" in run(app, "--help").stdout


def test_its_recipe_is_checked(trained, app):
    folder, _ = trained
    result = run(app, "train", folder / "recipe.toml", "training.best_metric=bleu", "--dry-run")
    assert "unknown metric 'bleu' for task 'shout'" in str(result.exception)
    plan = run(app, "train", folder / "recipe.toml", "--dry-run")
    assert 'task = "shout"' in plan.stdout
    assert 'kind = "classify"' in plan.stdout


def test_the_doctor_examines_its_data(trained, app):
    folder, _ = trained
    result = run(app, "doctor", folder / "recipe.toml", "--json")
    assert '"task": "shout"' in result.stdout
    assert '"labels": {"train": {"cat": 4, "dog": 4}' in result.stdout


def test_it_is_gone_without_its_declaration(trained, monkeypatch):
    _, best = trained
    monkeypatch.delitem(TASKS, "shout")
    with pytest.raises(AttributeError, match="shout"):
        regard.load(best).shout("the dog runs")
