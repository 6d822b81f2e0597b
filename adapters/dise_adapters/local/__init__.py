"""The in-process engine: transformers' weights, and our forward pass where we have one."""
