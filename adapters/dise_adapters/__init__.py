"""The built-in adapters: what loads a model and answers Reads with it. torch is imported when a
model is loaded.
"""
