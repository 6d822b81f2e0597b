"""Where a checkpoint's files are, and what they say."""
