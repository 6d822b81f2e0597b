"""Every hook that a plugin may implement, and the mark of a function that implements one.

A hook takes nothing and returns what the plugin adds, by name. A value may be the
"module:name" of a class or function, which is imported when it is used.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

from dise_core.constraints.constraint import Constraint
from dise_core.models.backend import Backend
from dise_core.models.predictor import MaskPredictor
from dise_core.params.base import Params
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.writing.length import LengthController
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.reviser import Reviser

PROJECT = "dise"
"""The entry-point group."""

INTERFACE_VERSION = 1
"""Of the hooks and of what they need: raised when an old plugin would have to change."""

hookspec = pluggy.HookspecMarker(PROJECT)

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's function as the hook of its name."""


@hookspec
def dise_scorers() -> Mapping[str, type[Scorer] | str]:
    """Return how a text is scored, for --scorer."""
    raise NotImplementedError


@hookspec
def dise_selectors() -> Mapping[str, type[Selector] | str]:
    """Return over which positions, for --selector. The class of NAME-K takes a number."""
    raise NotImplementedError


@hookspec
def dise_unmasking_policies() -> Mapping[str, type[UnmaskingPolicy] | str]:
    """Return which masks are filled first, for --unmasking."""
    raise NotImplementedError


@hookspec
def dise_length_controllers() -> Mapping[str, type[LengthController] | str]:
    """Return how an answer's length is found, for --length."""
    raise NotImplementedError


@hookspec
def dise_revisers() -> Mapping[str, type[Reviser] | str]:
    """Return what rewrites doubtful tokens of a finished answer, for --reviser."""
    raise NotImplementedError


@hookspec
def dise_constraints() -> Mapping[str, type[Constraint] | str]:
    """Return what answers must match, for --constraint."""
    raise NotImplementedError


@hookspec
def dise_mask_predictors() -> Mapping[str, type[MaskPredictor] | str]:
    """Return adapters, which load models, by the names that `adapter` takes."""
    raise NotImplementedError


@hookspec
def dise_engines() -> Mapping[str, type[Backend[Any]] | str]:
    """Return what runs models' forward passes, for --engine, with options of its own."""
    raise NotImplementedError


@hookspec
def dise_datasets() -> Mapping[str, object]:
    """Return questions with right answers, for `dise eval --dataset`."""
    raise NotImplementedError


@hookspec
def dise_commands() -> Mapping[str, Callable[..., None] | object]:
    """Return verbs of the command: functions or apps as typer takes them."""
    raise NotImplementedError


@hookspec
def dise_routes() -> Mapping[str, Callable[..., None] | str]:
    """Return functions of a FastAPI router, to which they add routes, and of the server's
    Service.
    """
    raise NotImplementedError


@hookspec
def dise_route_options() -> Mapping[str, type[Params]]:
    """Return classes whose fields are options of `dise serve`, which routes get from
    `Service.options`.
    """
    raise NotImplementedError


@hookspec
def dise_file_runners() -> Mapping[str, type[Params]]:
    """Return ways to answer the requests of --input, each a FileRunner of dise_app."""
    raise NotImplementedError
