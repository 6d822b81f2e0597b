"""What runs in processes of vLLM: the families as its models, the pooler, the route."""
