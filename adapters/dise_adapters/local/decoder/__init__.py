"""The forward pass: our own of Llama, Qwen2 and Qwen3, or all of a transformers model."""
