"""The paper's analyses: why regeneration says something about a text."""
