import json
import re
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib import image
from unit.training.recipes import train
from unit.training.tiny_data import write_recipe

from regard.training.run import state
from regard.training.run.checkpoint_averaging import average_checkpoints
from regard.training.run.curves import LEFT, RIGHT, WIDTH, group_panels, plot_curves, render_svg, ticks
from regard.training.run.run_dir import RunDir, read_metrics
from regard.training.run.state import TrainingProgress


def test_the_mean_is_the_mean(tmp_path):
    values = [torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    places = [
        state.save_checkpoint(
            tmp_path, TrainingProgress(step=step), {"parameter/a": value, "optimizer/a": value.clone()}, {}
        )
        for step, value in enumerate(values)
    ]
    found = average_checkpoints(places)
    assert list(found) == ["a"]
    torch.testing.assert_close(found["a"], sum(value.double() for value in values).div(3).float(), rtol=0, atol=0)
    assert torch.equal(average_checkpoints(places[:1])["a"], values[0])


def test_the_mean_is_of_what_was_measured(tmp_path):
    """A run with an EMA is evaluated and ranked with it."""
    raw, smooth = torch.zeros(2), [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])]
    places = [
        state.save_checkpoint(
            tmp_path,
            TrainingProgress(step=step),
            {"parameter/a": raw, "parameter/frozen": raw.clone(), "ema/a": value},
            {},
        )
        for step, value in enumerate(smooth)
    ]
    found = average_checkpoints(places)
    assert found["a"].tolist() == [2.0, 4.0]
    assert found["frozen"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("kind", "expected"), [("last", [2, 3, 4]), ("best", None)])
def test_a_run_tries_the_mean_of_its_states(tmp_path, kind, expected):
    change = {"training.average_checkpoints": {"kind": kind, "count": 3}, "training.steps": 4}
    change |= {"training.evaluate_every": 1, "training.save_every": 1, "training.keep_checkpoints": 1}
    best = train(write_recipe(tmp_path), change, output=tmp_path / "run")
    lines = read_metrics(RunDir(tmp_path / "run").metrics)
    tried = lines[-1]
    losses = {line["step"]: line["valid_loss"] for line in lines[:-1] if "valid_loss" in line}
    assert tried["averaged_steps"] == (expected or sorted(sorted(losses, key=losses.get)[:3]))
    weights = torch.cat([value.flatten() for value in _parameters(best).values()])
    places = state.list_checkpoints(tmp_path / "run" / "checkpoints")
    from_states = average_checkpoints([places[step] for step in tried["averaged_steps"]])
    averaged = sorted(from_states) and torch.cat([value.flatten() for value in from_states.values()])
    is_mean = weights.sort().values.allclose(averaged.sort().values)
    assert is_mean == (tried["valid_loss"] < min(losses.values()))


def _parameters(best):
    import regard

    return {name: value.detach() for name, value in regard.load(best).network.named_parameters()}


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
@example(low=879609.9999999999, width=1e-6)  # narrower than the resolution of the plot: drawn as one value
def test_ticks_are_round_and_hold_all_values(low, width):
    found = ticks(low, low + width)
    assert found[0] <= low + 1e-6 * width
    assert found[-1] >= low + width - 1e-6 * width
    assert 2 <= len(found) <= 9
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    assert max(steps) - min(steps) < 1e-6 * max(steps) + 1e-8


def test_one_value_has_ticks_too():
    assert ticks(3.0, 3.0)[0] < 3.0 < ticks(3.0, 3.0)[-1]


LINES = [
    {"step": 10, "epoch": 0, "loss": 4.0, "lr": 0.1},
    {"step": 20, "epoch": 0, "loss": 2.0, "lr": 0.2},
    {"step": 20, "epoch": 0, "valid_loss": 3.0, "valid_bleu": 1.0},
    {"step": 20, "averaged_steps": [10, 20], "valid_loss": 99.0},
]


def test_a_picture_is_xml_and_its_points_are_where_the_values_are():
    panels = group_panels(LINES)
    assert [[curve.name for curve in panel] for panel in panels] == [["loss", "valid_loss"], ["valid_bleu"], ["lr"]]
    picture = ET.fromstring(render_svg(panels, "a <run> & more"))
    lines = [line.get("points") for line in picture.iter() if line.tag.endswith("polyline")]
    assert len(lines) == 4
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in lines[0].split())
    assert x1 < x2
    assert y1 < y2  # the loss falls, and y grows downwards in SVG
    ((_, y),) = (map(float, point.split(",")) for point in lines[1].split())
    assert y == pytest.approx((y1 + y2) / 2, abs=0.2)  # 3 lies between 4 and 2
    ((last, _),) = (map(float, point.split(",")) for point in lines[2].split())
    assert last == pytest.approx(x2 + LEFT + WIDTH + RIGHT, abs=0.2)  # the next panel, over the same steps
    assert all(value != 99 for panel in panels for curve in panel for _, value in curve.points)
    assert re.search("a &lt;run&gt; &amp; more", render_svg(panels, "a <run> & more"))


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="is empty: nothing has been logged yet"):
        plot_curves(tmp_path, tmp_path / "curves.svg")


def test_a_picture_in_points(tmp_path):
    """Two curves in one panel: the first is drawn where the values are, in its own colour."""
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    plot_curves(tmp_path, tmp_path / "curves.png")
    drawn = image.imread(tmp_path / "curves.png")[..., :3]
    colours = {tuple(colour) for colour in (drawn * 255).round().astype(int).reshape(-1, 3).tolist()}
    assert {(31, 119, 180), (255, 127, 14)} <= colours  # matplotlib's first two


def test_png_needs_matplotlib(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"PNG needs matplotlib .*; SVG does not"):
        plot_curves(tmp_path, tmp_path / "curves.png")
