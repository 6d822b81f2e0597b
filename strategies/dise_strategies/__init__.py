"""The built-in strategies: selectors, scorers, length controllers, unmasking policies."""
