"""Modules that compute the same as those of the network, faster in training."""
