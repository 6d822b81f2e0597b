"""How long a response becomes."""
