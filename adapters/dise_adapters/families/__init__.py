"""One file a family of checkpoints: data, without torch."""
