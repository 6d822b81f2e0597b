"""The verbs eval, analyze and calibrate."""
