"""Model families (BERT, GPT-2, T5, …): for each, a translation of its published config and a weight map."""
