"""From a recipe to a trained network: objectives, optimisers, schedules, the loop, its exact state."""
