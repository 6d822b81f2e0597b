"""Selectors of the positions to score. In a text without a prompt, all of it is the response."""
