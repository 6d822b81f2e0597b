"""The hooks that plugins implement. Ours use the same ones. The entry-point group is "dise"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pluggy

from dise_core.backend import Backend
from dise_core.interfaces import LengthController, Scorer, Selector, UnmaskingPolicy
from dise_core.model import MaskPredictor

PROJECT = "dise"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def dise_selectors() -> Mapping[str, type[Selector]]:  # type: ignore[empty-body]
    """Return selectors by name. A name that ends in -K is called with a number there, which becomes
    the field `k`.
    """


@hookspec
def dise_scorers() -> Mapping[str, type[Scorer]]:  # type: ignore[empty-body]
    """Return scorers by name."""


@hookspec
def dise_length_controllers() -> Mapping[str, type[LengthController]]:  # type: ignore[empty-body]
    """Return length controllers by name."""


@hookspec
def dise_unmasking_policies() -> Mapping[str, type[UnmaskingPolicy]]:  # type: ignore[empty-body]
    """Return unmasking policies by name."""


@hookspec
def dise_mask_predictors() -> Mapping[str, type[MaskPredictor]]:  # type: ignore[empty-body]
    """Return mask predictors by name: an adapter for a family of checkpoints, or one model that
    goes by this name.
    """


@hookspec
def dise_engines() -> Mapping[str, type[Backend[Any]]]:  # type: ignore[empty-body]
    """Return backends by the name that the option `engine` gives them."""
