"""Selectors of the positions to score. A text without a prompt is all response."""
