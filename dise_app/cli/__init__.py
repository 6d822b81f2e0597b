"""The command `dise`."""
