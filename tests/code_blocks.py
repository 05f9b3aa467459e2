"""The fenced code blocks of a Markdown page."""

import re


def code_blocks(text, language=""):
    """The blocks of one language, in order; a block without a language is a shell session or a tree."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]
