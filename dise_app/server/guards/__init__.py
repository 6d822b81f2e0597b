"""What stands between a client and the model."""
