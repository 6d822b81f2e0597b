"""vLLM as the engine: LLaDA and Dream as pooling models whose pooler answers Reads, in process and
over HTTP.
"""
