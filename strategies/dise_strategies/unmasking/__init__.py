"""Which masked positions are committed in a denoising step."""
