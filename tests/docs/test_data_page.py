"""The code of docs/data.md is executed, block after block, as a reader would."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(code, "data.md", "exec"), names)
    assert len(names["corpus"]) == len(names["pairs"]) == 300
    assert names["later"].epoch == 3
    assert names["padded"].shape == (names["layout"].batch_size, names["layout"].longest)
    assert 768 < len(names["batch"]["tokens"].values) <= 1024
