"""Finds a checkpoint's files; reads its configuration, tokenizer and weights."""
