"""From examples to numbers: one encoder for each kind of example."""
