"""What to install where an optional package is missing."""

import re
from importlib.metadata import PackageNotFoundError, requires

from dise_core import InputError

DISTRIBUTIONS = {"sklearn": "scikit-learn", "prometheus_client": "prometheus-client"}
"""Distributions whose modules have other names."""


def missing(error: ImportError, command: str = "this") -> InputError | None:
    """Return the error for a module of dise's extras that `command` needs, or None."""
    module = (error.name or "").partition(".")[0]
    distribution = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    extra = _extra_of(distribution)
    if extra is None:
        return None
    return InputError(
        f"{command} needs {distribution}, of the extra {extra!r}, which is not installed: "
        f"pip install {distribution}, or install dise with that extra"
    )


def _extra_of(distribution: str) -> str | None:
    """Return the extra of dise that names a distribution, apart from "dev"."""
    try:
        listed = requires("dise") or []
    except PackageNotFoundError:
        return None
    for requirement in listed:
        match = re.match(r"([\w.-]+).*;\s*extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if match and match[1].lower() == distribution.lower() and match[2] != "dev":
            return match[2]
    return None
