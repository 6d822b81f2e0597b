"""What clients may send."""
