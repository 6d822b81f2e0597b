"""The verbs eval and calibrate."""
