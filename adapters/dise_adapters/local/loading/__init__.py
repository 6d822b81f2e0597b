"""From a checkpoint's files to a reader: weights, quantization, placement, memory."""
