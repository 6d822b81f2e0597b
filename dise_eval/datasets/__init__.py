"""The data sets."""
