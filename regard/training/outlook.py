"""What a recipe would do."""
