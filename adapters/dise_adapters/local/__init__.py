"""The in-process engine: transformers' weights, and our forward pass for some."""
