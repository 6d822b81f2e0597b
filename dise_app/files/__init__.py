"""Files of JSON lines: read with bounds, written whole, resumed."""
