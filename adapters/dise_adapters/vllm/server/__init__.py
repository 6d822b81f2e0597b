"""Models on a vLLM server, which is asked over HTTP."""
