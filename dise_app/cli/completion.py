"""What the shell completes after an option that takes a name."""

from __future__ import annotations

from collections.abc import Callable

NAMED = {
    "scorer": "scorers",
    "selector": "selectors",
    "length": "length_controllers",
    "unmasking": "unmasking_policies",
    "reviser": "revisers",
    "engine": "engines",
    "adapter": "mask_predictors",
}
"""The fields of params.py that take a name, with the catalog's part that has the names."""


def completion_of(field: str) -> Callable[[str], list[str]] | None:
    """Return the function that completes a field's option from what is installed; None for a field
    that takes no name.
    """
    if field not in NAMED:
        return None

    def complete(incomplete: str) -> list[str]:
        from dise_core.plugins import installed_plugins

        names = getattr(installed_plugins(), NAMED[field])
        return [name for name in names if name.startswith(incomplete)]

    return complete
