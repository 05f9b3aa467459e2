"""What a network is used for: from text to text."""
