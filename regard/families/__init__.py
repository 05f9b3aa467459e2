"""What makes BERT BERT: a config translation and a weight table, one short file for each family."""
