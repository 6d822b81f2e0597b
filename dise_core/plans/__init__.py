"""What a plan asks of the engine, what it is answered, and what it costs."""
