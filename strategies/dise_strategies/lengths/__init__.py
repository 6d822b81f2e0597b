"""Length controllers."""
