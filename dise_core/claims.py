"""Which adapter loads a model: the one that the user names, else the one that claims it, other
people's before ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dise_core.errors import DiseError, InputError, ModelError, UnknownNameError
from dise_core.model import MaskPredictor

if TYPE_CHECKING:
    from dise_core.catalog import Entry

Adapters = Mapping[str, "Entry[MaskPredictor]"]

ADVICE = "--adapter NAME (in Python adapter=NAME)"


def choose(
    model: str, adapter: str | None, adapters: Adapters, revision: str | None = None
) -> Entry[MaskPredictor]:
    """Return the adapter of that name, without asking whether it claims the model; for None the one
    that does.

    A model that an adapter is named after is asked of that adapter alone, if it claims it. Else an
    adapter of another distribution wins over the built-in ones, which are then not asked; of those
    the first by name wins. revision: that of a hub id, which the adapters ask for. An adapter that
    fails when it is asked stops nobody. Raises UnknownNameError for an unknown adapter
    and for a model that none claims, with what is known of it; InputError if two of the same
    standing claim it; and the error that an adapter's `explain` raises.
    """
    if adapter is not None:
        if adapter not in adapters:
            raise UnknownNameError("adapter", adapter, adapters)
        return adapters[adapter]
    named = {name: entry for name, entry in adapters.items() if name == model}
    others = {name: entry for name, entry in adapters.items() if not entry.is_built_in}
    ours = {name: entry for name, entry in adapters.items() if entry.is_built_in}
    failures: dict[str, str] = {}
    for group in (named, others, ours):
        claiming = {
            name: entry
            for name, entry in group.items()
            if _is_claimed(name, entry, model, revision, failures)
        }
        if len(claiming) > 1 and group is not ours:
            rivals = " and ".join(
                f"{name!r} of plugin {entry.plugin!r}" for name, entry in claiming.items()
            )
            raise InputError(
                f"model {model!r} is claimed by {rivals}; choose one with {ADVICE}", "model"
            )
        if claiming:
            return next(iter(claiming.values()))
    raise _unclaimed(model, revision, adapters, failures)


def claim(
    name: str, entry: Entry[MaskPredictor], model: str, revision: str | None = None
) -> tuple[bool, str | None]:
    """Return whether the adapter of that name claims the model, and in one line how it failed where
    it could not tell.
    """
    try:
        return bool(entry.cls.claims(model, *_given(revision))), None
    except Exception as error:
        return False, _failure(name, entry, "claims", error)


def _is_claimed(
    name: str,
    entry: Entry[MaskPredictor],
    model: str,
    revision: str | None,
    failures: dict[str, str],
) -> bool:
    is_claimed, failure = claim(name, entry, model, revision)
    if failure is not None:
        failures[name] = failure
    return is_claimed


def _given(revision: str | None) -> tuple[str, ...]:
    """Return the arguments that tell an adapter a revision: none where the user names none."""
    return () if revision is None else (revision,)


def _unclaimed(
    model: str, revision: str | None, adapters: Adapters, failures: dict[str, str]
) -> DiseError:
    """Return the error that says why nobody loads the model: what stands in the way of knowing it,
    else what it is.
    """
    told: list[str] = []
    for name, entry in adapters.items():
        try:
            told.append(entry.cls.explain(model, *_given(revision)) or "")
        except DiseError as problem:
            if not failures:
                return problem
            kind = InputError if isinstance(problem, InputError) else ModelError
            return kind("; ".join([str(problem), *failures.values()]))
        except Exception as error:
            failures.setdefault(name, _failure(name, entry, "explain", error))
    facts = [*filter(None, dict.fromkeys(told)), *failures.values()]
    advice = (
        [
            f"Load it with an adapter of your choice, {ADVICE}, or install a plugin that has one "
            "for it"
        ]
        if facts
        else []
    )
    return UnknownNameError("model", model, adapters, ". ".join([*facts, *advice]))


def _failure(name: str, entry: Entry[MaskPredictor], function: str, error: Exception) -> str:
    problem = " ".join(f"{type(error).__name__}: {error}".split())
    return f"Adapter {name!r} of plugin {entry.plugin!r} fails in {function}(): {problem}"
