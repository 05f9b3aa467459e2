"""From files to batches: readers, the encoded corpus, batches by tokens, and the doctor."""
