"""The error of tokenizer files and of calls."""

from __future__ import annotations


class TokenizerError(ValueError):
    """A tokenizer file or call is invalid. The message names the file, what was found and expected, and what to do."""
