"""What to install where an optional package is missing."""

import re
from importlib.metadata import requires

from dise_core import InputError

EXTRA = re.compile(r"([\w.-]+).*;\s*extra\s*==\s*['\"](?!dev['\"])([\w-]+)['\"]")
"""A requirement of one of dise's extras, apart from "dev": its distribution, and the extra."""


def missing(error: ImportError, command: str = "this") -> InputError | None:
    """Return the error for a module of dise's extras that `command` needs, or None."""
    module = (error.name or "").partition(".")[0]
    distribution = "scikit-learn" if module == "sklearn" else module.replace("_", "-")
    for requirement in requires("dise") or ():
        match = EXTRA.match(requirement)
        if match and match[1] == distribution:
            return InputError(
                f"{command} needs {distribution}, of the extra {match[2]!r}, which is not "
                f"installed: pip install {distribution}, or install dise with that extra"
            )
    return None
