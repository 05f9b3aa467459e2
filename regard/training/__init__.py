"""Recipes, objectives, optimizers, losses, and the training run."""
