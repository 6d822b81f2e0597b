"""The mark of functions that implement a hook, the built-in plugins' included."""

import pluggy

PROJECT = "dise"
"""The entry-point group."""

INTERFACE_VERSION = 1
"""Of the hooks and of what they need: raised when an old plugin would have to change."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function as the hook of its name."""
