"""The programs that users run: the command, the server, the evaluation and the harness."""
