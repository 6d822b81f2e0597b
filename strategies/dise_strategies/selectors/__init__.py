"""Which positions a score is taken over. Where a text has no prompt, all of it is the response."""
