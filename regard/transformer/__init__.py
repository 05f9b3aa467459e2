"""The architecture: read it in the order of the paper's figure 1."""
