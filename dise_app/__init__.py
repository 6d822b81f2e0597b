"""What a person runs, and the only place where all of it is put together."""
