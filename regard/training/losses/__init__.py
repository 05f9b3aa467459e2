"""Fused losses: computed together with their gradients."""
