"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # neighbours on the cores are no failure
settings.load_profile("shared machine")
