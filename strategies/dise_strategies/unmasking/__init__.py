"""Unmasking policies: which masked positions a denoising step commits."""
