"""The code of docs/engine.md is executed, block after block."""

import re
from pathlib import Path

import torch

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")


def test_python_blocks_run_in_order():
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 3
    for code in blocks:
        exec(compile(code, "docs/engine.md", "exec"), names)
    torch.testing.assert_close(names["same"], names["expected"], rtol=1e-4, atol=1e-5)
    assert names["available"]() == (names["status"]() == "in use")
    assert names["error"].cosine_similarity > 0.99
