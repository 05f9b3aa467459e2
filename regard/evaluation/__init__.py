"""A model run over data: predictions, metrics, training with them."""
