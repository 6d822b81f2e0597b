"""The in-process engine: transformers' weights, with our own forward pass where we have one."""
