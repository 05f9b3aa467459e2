"""Draw the pictures of `docs/lab-notes.md` from the recorded measurements in `docs/measurements`.

python docs/make_figures.py          # writes docs/*.svg, except the family tree (make_families_page.py)
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from regard.tasks.registry import TASKS
from regard.training.recipe.presets import preset_text
from regard.training.recipe.schema import load_recipe, recipe_to_toml
from regard.training.run.curves import plot_curves
from regard.training.run.run_dir import BEST_INFO

DOCS = Path(__file__).parent
RUNS = {
    "translator": "multi30k",
    "wikitext-causal": "wikitext-causal",
    "wikitext-masked": "wikitext-masked",
    "letters": "characters-long",
}
"""The runs whose metrics are recorded, with the preset recipe of each."""


def draw_run(name: str, target: Path) -> None:
    """Draw the curves of a recorded run: its metrics, with the recipe that it had."""
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / name
        (run / "best").mkdir(parents=True)
        shutil.copy(DOCS / "measurements" / f"{name}.jsonl", run / "metrics.jsonl")
        (run / "recipe.toml").write_text(preset_text(RUNS[name]), encoding="utf-8")
        recipe = load_recipe(run / "recipe.toml", tasks=TASKS)
        (run / "recipe.toml").write_text(recipe_to_toml(recipe), encoding="utf-8")
        best = f"valid_{recipe.training.best_metric}"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        # All of these metrics are losses or perplexities: the least is the best.
        evaluated = min((line for line in lines if best in line), key=lambda line: line[best])
        info = {"step": evaluated["step"], "value": evaluated[best]}
        (run / "best" / BEST_INFO).write_text(json.dumps(info), encoding="utf-8")
        plot_curves(run, target)


def draw_growth(target: Path) -> None:
    """Draw the measurements of `benchmarks/growth.py`."""
    sys.path.insert(0, str(DOCS.parent / "benchmarks"))
    import growth

    growth.plot(target, json.loads((DOCS / "measurements" / "growth.json").read_text(encoding="utf-8")))


def write() -> None:
    """Draw all pictures."""
    for name in RUNS:
        draw_run(name, DOCS / f"{name}.svg")
    draw_growth(DOCS / "growth.svg")


if __name__ == "__main__":
    write()
