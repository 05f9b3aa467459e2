"""Tasks from text to text: translation and generation with a network and its tokenizer."""
