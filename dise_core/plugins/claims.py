"""Which adapter loads a model: the one named, else the one that claims it, built-in ones last."""

from collections.abc import Mapping, Sequence

from dise_core.errors import (
    DiseError,
    InputError,
    ModelError,
    PluginError,
    UnknownNameError,
    error_line,
)
from dise_core.models.named import ModelName
from dise_core.models.predictor import MaskPredictor
from dise_core.plugins.entry import Entry

Adapters = Mapping[str, Entry[type[MaskPredictor]]]

ADVICE = "--model-args adapter=NAME (in Python adapter=NAME)"


def choose(
    model: str,
    adapters: Adapters,
    revision: str | None = None,
    problems: Sequence[PluginError] = (),
) -> Entry[type[MaskPredictor]]:
    """Return the adapter that claims the model: one of that very name, else one of
    another distribution, else the first built-in one. One that raises when asked does not
    stop the others.
    Raises UnknownNameError, with what is known of the model, if none does; InputError if
    two others do; and what `explain` raises.
    """
    model = ModelName.of(model)
    namesakes = {name: entry for name, entry in adapters.items() if name == model}
    guests = {name: entry for name, entry in adapters.items() if not entry.is_built_in}
    ours = {name: entry for name, entry in adapters.items() if entry.is_built_in}
    failures = {"": broken(problems)} if problems else {}
    for group in (namesakes, guests, ours):
        answers = {name: claim(name, entry, model, revision) for name, entry in group.items()}
        failures |= {name: failure for name, (_, failure) in answers.items() if failure}
        claiming = {name: group[name] for name, (is_claimed, _) in answers.items() if is_claimed}
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


def broken(problems: Sequence[PluginError]) -> str:
    """Return what to say of broken plugins where a name or a model is unknown."""
    plugins = ", ".join(sorted({repr(problem.plugin) for problem in problems}))
    about = "It may be that of a plugin with a problem, which `dise plugins` tells: "
    return f"{about}{plugins}" if plugins else ""


def claim(
    name: str, entry: Entry[type[MaskPredictor]], model: str, revision: str | None = None
) -> tuple[bool, str | None]:
    """Return whether the adapter claims the model, and why asking failed, if it did."""
    try:
        return bool(entry.load().claims(model, *_given(revision))), None
    except Exception as error:
        return False, _failure(name, entry, "claims", error)


def _given(revision: str | None) -> tuple[str, ...]:
    return () if revision is None else (revision,)


def _unclaimed(
    model: str, revision: str | None, adapters: Adapters, failures: dict[str, str]
) -> DiseError:
    if model in adapters and model not in failures:
        example = adapters[model].load().example
        such_as = f", such as {example}" if example else ""
        return InputError(
            f"{model!r} is an adapter and no model: name a model that it loads by its folder or "
            f"hub id{such_as}; `dise models` lists what can be named",
            "model",
        )
    explanations: list[str] = []
    for name, entry in adapters.items():
        try:
            explanations.append(entry.load().explain(model, *_given(revision)) or "")
        except PluginError as problem:
            failures.setdefault(name, str(problem))
        except DiseError as problem:
            if not failures:
                return problem
            error_class = InputError if isinstance(problem, InputError) else ModelError
            return error_class("; ".join([str(problem), *failures.values()]))
        except Exception as error:
            failures.setdefault(name, _failure(name, entry, "explain", error))
    facts = [*filter(None, dict.fromkeys(explanations)), *failures.values()]
    if facts:
        facts.append(
            f"Load it with an adapter of your choice, {ADVICE}, or install a plugin that has one "
            "for it"
        )
    models = [name for name, entry in adapters.items() if claim(name, entry, name)[0]]
    return UnknownNameError("model", model, models or adapters, ". ".join(facts))


def _failure(name: str, entry: Entry[type[MaskPredictor]], function: str, error: Exception) -> str:
    return f"Adapter {name!r} of plugin {entry.plugin!r} fails in {function}(): {error_line(error)}"
