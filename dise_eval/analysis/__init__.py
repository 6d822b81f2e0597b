"""The paper's analyses of why regenerating a text tells something about it."""
