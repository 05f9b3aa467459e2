"""The curves of runs: what is drawn, and where."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib import image

from regard.training.run.curves import RunCurves, distinct_names, plot_curves, read_curves

LINES = [
    {"step": 10, "epoch": 0, "loss": 4.0, "lr": 0.1},
    {"step": 20, "epoch": 0, "loss": 2.0, "lr": 0.2},
    {"step": 20, "epoch": 0, "valid_loss": 3.0, "valid_bleu": 1.0},
    {"step": 20, "averaged_steps": [10, 20], "valid_loss": 99.0},
]
RECIPE = """
task = "translate"
[network]
family = "transformer"
dropout = 0.3
[objective]
kind = "translate"
label_smoothing = 0.1
rdrop = 2.0
[training]
best_metric = "bleu"
"""


def write_run(folder, lines=LINES, best=None, recipe=RECIPE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "recipe.toml").write_text(recipe)
    if best:
        (folder / "best").mkdir()
        (folder / "best" / "run.json").write_text(json.dumps(best))
    return folder


def texts(path):
    return [element.text for element in ET.parse(path).iter() if element.tag.endswith("}text")]


def colours(path):
    """How many pixels have each colour."""
    pixels = (image.imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3)
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    return {tuple(map(int, colour)): int(count) for colour, count in zip(found, counts, strict=True)}


def test_averaged_checkpoints_are_no_points():
    points = read_curves(LINES)
    losses, rates = [(10, 4), (20, 2)], [(10, 0.1), (20, 0.2)]
    assert points == {"loss": losses, "lr": rates, "valid_loss": [(20, 3)], "valid_bleu": [(20, 1)]}


def test_axes_have_names_and_units_and_the_best_step_is_named(tmp_path):
    run = write_run(tmp_path / "a <run> & more", best={"step": 20, "value": 1.0})
    plot_curves(run, tmp_path / "curves.svg")
    found = texts(tmp_path / "curves.svg")
    assert found.count("optimizer steps") == 3  # loss, BLEU, lr
    assert {"Loss", "nats per token", "Validation BLEU", "points of 100", "training", "validation"} <= set(found)
    assert "a <run> & more (best: step 20, bleu 1)" in found


def test_why_the_training_loss_lies_above_is_below_the_picture(tmp_path):
    plot_curves(write_run(tmp_path / "run"), tmp_path / "curves.svg")
    caption = " ".join(texts(tmp_path / "curves.svg"))
    assert "measured with dropout 0.3, label smoothing 0.1 and R-Drop 2, the validation loss without" in caption
    plain = RECIPE.replace("0.3", "0.0").replace("label_smoothing = 0.1\nrdrop = 2.0", "")
    plot_curves(write_run(tmp_path / "plain", recipe=plain), tmp_path / "plain.svg")
    assert "may lie above" not in " ".join(texts(tmp_path / "plain.svg"))


def test_the_loss_of_a_classifier_is_not_per_token(tmp_path):
    recipe = RECIPE.replace('"translate"', '"classify"')
    plot_curves(write_run(tmp_path / "run", recipe=recipe), tmp_path / "curves.svg")
    assert "nats per text" in texts(tmp_path / "curves.svg")


def test_a_curve_of_one_evaluation_is_seen(tmp_path):
    """The line of a single point has no length, so it needs a marker."""
    plot_curves(write_run(tmp_path / "run"), tmp_path / "curves.png")
    validation = (200, 85, 61)  # the second colour, in the panel of the loss
    assert colours(tmp_path / "curves.png").get(validation, 0) > 40
    no_evaluation = write_run(tmp_path / "none", LINES[:2])
    plot_curves(no_evaluation, tmp_path / "none.png")
    assert validation not in colours(tmp_path / "none.png")


def test_runs_are_compared_in_one_picture(tmp_path):
    one = write_run(tmp_path / "one", best={"step": 20, "value": 1.0})
    two = write_run(tmp_path / "two", [{**line, "loss": 1.0} if "loss" in line else line for line in LINES])
    plot_curves([one, two], tmp_path / "both.svg")
    found = texts(tmp_path / "both.svg")
    assert {"2 training runs", "one (best: step 20, bleu 1)", "two"} <= set(found)
    assert found.count("Loss") == 1
    plot_curves([one, two], tmp_path / "both.png")
    counts = colours(tmp_path / "both.png")
    assert counts[31, 111, 178] > 100
    assert counts[200, 85, 61] > 100


def test_runs_of_one_name_are_told_apart_by_their_parents(tmp_path):
    assert distinct_names([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    with pytest.raises(ValueError, match="is there twice"):
        distinct_names([tmp_path / "run", tmp_path / "x" / ".." / "run"])


def test_points_are_where_the_values_are(tmp_path):
    """The loss falls from 4 to 2, and the evaluation of 3 lies in the middle; y grows downwards in SVG."""
    plot_curves(write_run(tmp_path / "run"), tmp_path / "curves.svg")
    picture = (tmp_path / "curves.svg").read_text()
    training = re.search(r'<path d="(M [^"]*)" clip-path="[^"]*" style="[^"]*stroke: #1f6fb2', picture)[1]
    (x1, y1), (x2, y2) = (tuple(map(float, point.split())) for point in re.split("[ML]", training)[1:])
    assert x1 < x2
    assert y1 < y2
    marker = re.search(r'<use xlink:href="#\w+" x="([\d.]+)" y="([\d.]+)" style="fill: #c8553d', picture)
    assert float(marker[1]) == pytest.approx(x2, abs=0.1)
    assert float(marker[2]) == pytest.approx((y1 + y2) / 2, abs=0.1)


def test_the_same_run_gives_the_same_file(tmp_path):
    run = write_run(tmp_path / "run")
    for name in ("a", "b"):
        plot_curves(run, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="is empty: nothing has been logged yet"):
        plot_curves(tmp_path, tmp_path / "curves.svg")


def test_the_best_of_an_average_is_no_step(tmp_path):
    run = RunCurves(write_run(tmp_path / "run", best={"step": 20, "averaged_steps": [10, 20]}), "run")
    assert run.describe() == "run"
