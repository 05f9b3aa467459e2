"""From data to a trained network: objective, loop, optimizer, schedule, exact state, averaging."""
