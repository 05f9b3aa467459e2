"""Recipes: schema, validation errors, presets, and what is built from them."""
