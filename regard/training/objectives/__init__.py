"""What a network is trained to do: one file for each objective."""
