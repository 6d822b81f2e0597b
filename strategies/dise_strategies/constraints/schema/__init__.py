"""Regular expressions of the JSON that is valid under a schema; the writer says which schemas."""
