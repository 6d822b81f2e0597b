"""Regular expressions of the JSON that is valid under a schema."""
