"""The marks of the hooks that plugins implement, the built-in ones included."""

import pluggy

PROJECT = "dise"
"""The entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
