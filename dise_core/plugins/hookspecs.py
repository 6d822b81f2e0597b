"""The hooks that plugins implement, the built-in ones included. The entry-point group is "dise"."""

from collections.abc import Mapping

import pluggy

from dise_core.constraints.constraint import Constraint
from dise_core.models.backend import Backends
from dise_core.models.predictor import MaskPredictor
from dise_core.params.base import Params
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.writing.length import LengthController
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.reviser import Reviser

PROJECT = "dise"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def dise_selectors() -> Mapping[str, type[Selector]]:  # type: ignore[empty-body]
    """Return selectors by name. In place of a name's final K users put a number, the field `k`."""


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
def dise_constraints() -> Mapping[str, type[Constraint]]:  # type: ignore[empty-body]
    """Return constraints by name."""


@hookspec
def dise_mask_predictors() -> Mapping[str, type[MaskPredictor]]:  # type: ignore[empty-body]
    """Return mask predictors by name: each the adapter of a family of checkpoints, or one model
    that users load by this name.
    """


@hookspec
def dise_engines() -> Backends:  # type: ignore[empty-body]
    """Return backends by name, the values that the option `engine` takes."""


@hookspec
def dise_commands() -> Mapping[str, object]:  # type: ignore[empty-body]
    """Return verbs of the command `dise` by name: functions or apps as typer takes them, or the
    "module:name" of one, which is imported only when it is asked for or listed.
    """


@hookspec
def dise_routes() -> Mapping[str, object]:  # type: ignore[empty-body]
    """Return routes of `dise serve` by name: functions of a FastAPI router, to which they are
    added, and of the server's Service, or the "module:name" of one.
    """


@hookspec
def dise_route_options() -> Mapping[str, type[Params]]:  # type: ignore[empty-body]
    """Return classes by name whose fields, all with a default, are options of `dise serve`. Routes
    get what the operator set from `Service.options`.
    """


@hookspec
def dise_fits() -> Mapping[str, object]:  # type: ignore[empty-body]
    """Return by name what else `dise calibrate --NAME` fits: functions of the labelled file, the
    output, the options and whether JSON is printed, or the "module:name" of one.
    """


@hookspec
def dise_datasets() -> Mapping[str, object]:  # type: ignore[empty-body]
    """Return data sets of `dise eval` by name, each a Dataset of dise_eval or its "module:name"."""


@hookspec
def dise_file_runners() -> Mapping[str, type[Params]]:  # type: ignore[empty-body]
    """Return ways to answer the requests of --input by name, each a FileRunner of dise_app, whose
    fields become options.
    """
