"""The programs that users run: the command and the server."""
