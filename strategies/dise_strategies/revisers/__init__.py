"""Revisers."""
