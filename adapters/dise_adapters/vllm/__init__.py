"""vLLM as an engine: diffusion models run as pooling models whose pooler answers Reads, in process
or over HTTP.
"""
