"""vLLM as an engine: a pooler that answers Reads, in process or over HTTP."""
