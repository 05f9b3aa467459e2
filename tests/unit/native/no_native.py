"""Simulates a machine without the native library."""

from regard.native import library


def without_native_library(monkeypatch):
    monkeypatch.setattr(library, "_load_library", lambda: (None, "disabled by a test"))
