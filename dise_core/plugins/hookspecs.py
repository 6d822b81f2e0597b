"""The mark of functions that implement a hook, the built-in plugins' included."""

import pluggy

PROJECT = "dise"
"""The entry-point group."""

hookimpl = pluggy.HookimplMarker(PROJECT)
