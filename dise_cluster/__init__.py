"""A corpus on many workers: shards, Ray, and classes for its pipelines."""
