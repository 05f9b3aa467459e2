"""The families whose configs are flat and whose keys are drawn at random by name."""

from regard.families.registry import FAMILIES as ALL

APART = {"vit", "clip", "clip_text_model", "clip_vision_model", "transfo-xl", "xlnet"}
"""Nested configs, images, memory: these have tests of their own (test_vision, test_clip, test_transformer_xl, …)."""
FAMILIES = {name: family for name, family in ALL.items() if name not in APART}
