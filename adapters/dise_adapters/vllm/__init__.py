"""vLLM as an engine: a pooling model whose pooler answers Reads, in process or over HTTP."""
