"""Denoising: canvases, policies, lengths, revisions."""
