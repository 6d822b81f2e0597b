"""Our models in lm-evaluation-harness."""
