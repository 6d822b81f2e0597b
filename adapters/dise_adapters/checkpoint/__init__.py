"""Finds a checkpoint's files and reads its configuration, special tokens and tokenizer."""
