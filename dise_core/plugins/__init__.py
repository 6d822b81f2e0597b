"""Strategies, models and engines by name, from the installed plugins."""
