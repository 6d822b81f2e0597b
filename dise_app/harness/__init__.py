"""lm-evaluation-harness: our models among its own."""
