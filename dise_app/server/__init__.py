"""The HTTP server: OpenAI's API, with a confidence in every answer."""
