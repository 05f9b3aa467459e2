"""Recipes: their schema, their errors, what is built from them."""
