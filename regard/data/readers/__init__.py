"""Readers, one module per format. Each streams its files in order, with one record in memory (SQuAD: one file)."""
