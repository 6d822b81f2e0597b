"""How sure a model is of a text: scorers, selectors, scores, calibration."""
