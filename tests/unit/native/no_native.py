"""A machine without the compiled parts."""

from regard.native import library


def without_compiled_parts(monkeypatch):
    monkeypatch.setattr(library, "_found", lambda: (None, "left out by a test"))
