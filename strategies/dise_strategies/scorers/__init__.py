"""Scorers: how sure the model is of a finished text."""
