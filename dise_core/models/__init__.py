"""A loaded model: its description, tokenizer and Reads; prompts as token ids."""
