"""From the files of a checkpoint to a reader: weights, quantization, placement, memory."""
