"""The built-in adapters, which load models and answer Reads. torch is imported only when a model is
loaded.
"""
