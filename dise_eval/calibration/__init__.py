"""Calibration: from labelled scores to probabilities, thresholds and their promises."""
