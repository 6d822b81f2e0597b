"""A guest's plugins beside the installed ones."""

from __future__ import annotations

from typing import Any

from dise_core import Catalog
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.entry import Entry


def with_guests(**kinds: dict[str, type[Any]]) -> Catalog:
    """Return the installed catalog with these classes of a guest's, each kind by its plural."""
    installed = installed_catalog()
    guests = {
        plural: {name: Entry(cls, "guest") for name, cls in classes.items()}
        for plural, classes in kinds.items()
    }
    return installed.having(
        **{plural: {**installed.entries[plural], **guests[plural]} for plural in kinds}
    )
