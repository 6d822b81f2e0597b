"""One file per family of checkpoints: data, without torch."""
