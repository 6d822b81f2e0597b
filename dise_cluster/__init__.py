"""A corpus on many workers: shards that are written once, Ray, and classes for its pipelines."""
