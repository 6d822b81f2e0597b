"""Typed decisions as a guest of the command and of the server."""

from __future__ import annotations

from dise_core import hookimpl
from dise_core.params.base import Params
from dise_decide.params import DecisionParams, ServedDecisions


@hookimpl
def dise_commands() -> dict[str, str]:
    """Return the verb `decide`."""
    return {"decide": "dise_decide.command:decide"}


@hookimpl
def dise_routes() -> dict[str, str]:
    """Return the routes of decisions."""
    return {"decisions": "dise_decide.routes:add_decisions"}


@hookimpl
def dise_route_options() -> dict[str, type[Params]]:
    """Return the options of `dise serve` for decisions."""
    return {"decisions": DecisionParams, "decision-calibration": ServedDecisions}
