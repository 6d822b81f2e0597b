"""The entry points: requests become plans, results become answers."""
