"""The engine of this process: transformers' weights, our own forward pass where we have one."""
