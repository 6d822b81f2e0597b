"""The HTTP server: OpenAI's API, with a score in every answer."""
