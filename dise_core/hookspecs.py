"""The hooks that plugins implement, the built-in ones included. The entry-point group is "dise"."""

from __future__ import annotations

from collections.abc import Mapping

import pluggy

from dise_core.backend import Backends
from dise_core.interfaces import LengthController, Reviser, Scorer, Selector, UnmaskingPolicy
from dise_core.model import MaskPredictor

PROJECT = "dise"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def dise_selectors() -> Mapping[str, type[Selector]]:  # type: ignore[empty-body]
    """Return selectors by name. Users put a number in place of the K of a name that ends in -K; it
    becomes the field `k`.
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
def dise_revisers() -> Mapping[str, type[Reviser]]:  # type: ignore[empty-body]
    """Return revisers by name."""


@hookspec
def dise_mask_predictors() -> Mapping[str, type[MaskPredictor]]:  # type: ignore[empty-body]
    """Return mask predictors by name: each the adapter of a family of checkpoints, or one model
    that users load by this name.
    """


@hookspec
def dise_engines() -> Backends:  # type: ignore[empty-body]
    """Return backends by name, the values that the option `engine` takes."""
