"""The families with flat configs, whose keys the tests sample at random by name."""

from regard.families.registry import FAMILIES as ALL

APART = {"vit", "clip", "clip_text_model", "clip_vision_model", "transfo-xl", "xlnet"}
"""Families with nested configs, images or a memory; they have separate tests (test_vision, test_clip, …)."""
FAMILIES = {name: family for name, family in ALL.items() if name not in APART}
