"""Simulates a machine without the native library."""

from regard.native import library


def without_native_library(monkeypatch):
    monkeypatch.setattr(library, "_load_library", lambda: (None, "disabled by a test"))


without_compiled_parts = without_native_library  # the old name, still used by tests of other packages
