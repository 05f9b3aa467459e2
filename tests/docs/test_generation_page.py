"""The code of docs/generation.md is executed, block after block."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "generation.md").read_text(encoding="utf-8")


def test_python_blocks_run_in_order():
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 7
    for code in blocks:
        exec(compile(code, "docs/generation.md", "exec"), names)
