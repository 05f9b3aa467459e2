"""From files to batches: readers, the encoded corpus, batches by tokens, packing, windows, the doctor."""
