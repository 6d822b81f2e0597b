"""From Reads to the batches that answer them, and from logits to Readings."""
