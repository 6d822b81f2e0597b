"""Published evaluations as data: a file each, or for several that share most of it."""
