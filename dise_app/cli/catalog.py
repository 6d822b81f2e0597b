"""dise plugins, dise models: strategies, models, engines and broken plugins."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any

import typer

from dise_app.cli import options
from dise_app.terminal.lines import tell
from dise_core import DiseError, InputError, PluginError, UnknownNameError
from dise_core.errors import error_line
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.entry import Entry
from dise_core.plugins.hookspecs import INTERFACE_VERSION
from dise_core.plugins.kinds import KINDS, Kind
from dise_core.scoring.explaining import sentence
from dise_core.scoring.strategy import Strategy

Rows = list[dict[str, object]]

TITLES = [kind.title for kind in KINDS]


@options.verb()
def plugins(
    kind: Annotated[
        str | None, typer.Option(help=f"Only this kind, with every setting: {', '.join(TITLES)}.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the strategies and adapters that are installed.

    By the plugin they came from; of one --kind with their settings. All are imported: a
    broken plugin is named on standard error (with --json under "problems" too), and the
    exit code is 1.
    """
    from dise_app.cli import listings
    from dise_app.settings import settings_or_problem
    from dise_core.plugins.discovery import installed_plugins

    catalog, rows = installed_plugins(), Rows()
    problems = list(catalog.problems)
    for listed in KINDS if kind is None else [_kind_of(kind)]:
        for name, entry in getattr(catalog, listed.plural).items():
            try:
                value = _opened(entry, listed)
            except PluginError as error:
                problems.append(error)
                continue
            home, about = entry.distribution, _about(value)
            row = {"kind": listed.title, "name": name, "plugin": entry.plugin}
            row |= {"distribution": home, "version": home and version(home)}
            row["suits"] = _suits(value)
            if kind is None:
                rows.append({**row, "about": sentence(about)})
                continue
            paragraph = " ".join(about.partition("\n\n")[0].split())
            settings, problem = settings_or_problem(value)
            rows.append({**row, "about": paragraph, "settings": settings, "problem": problem})
    show = None if as_json else listings.show_plugins if kind is None else listings.show_settings
    _finish("plugins", rows, problems, show, interface_version=INTERFACE_VERSION)


@options.verb()
def models(
    model: Annotated[
        str | None, typer.Argument(help="Only what loads this one: a name, folder or hub id.")
    ] = None,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise", help="Try a few layers of MODEL in each type of weights: memory and time."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List what can be given as a model, and what a GGUF file says about itself.

    Names, then the adapters for folders and hub ids, with what models were trained on and
    the scorers that suit them. A broken plugin, and an adapter that fails when it is
    asked for its own name, are named as `dise plugins` does.
    """
    from dise_adapters.checkpoint.gguf_card import gguf_card
    from dise_adapters.checkpoint.hub import gguf_path, is_gguf
    from dise_app.cli.listings import show_models
    from dise_app.cli.suited import suited_scorers
    from dise_core.plugins.claims import claim
    from dise_core.plugins.discovery import installed_plugins

    if advise and model is None:
        raise InputError("--advise tries one model; name it: dise models MODEL --advise", "advise")
    catalog, rows = installed_plugins(), Rows()
    problems = list(catalog.problems)
    claimant = None if model is None else catalog.adapter(model).load()
    for name, entry in catalog.mask_predictors.items():
        try:
            adapter = entry.load()
        except PluginError as error:
            problems.append(error)
            continue
        if claimant not in (None, adapter):
            continue
        by_name, failure = claim(name, entry, name)
        if failure is not None:
            problems.append(PluginError(failure, entry.plugin))
        row = {"name": name, "plugin": entry.plugin, "by_name": by_name}
        facts = {
            "checked_on_weights": adapter.checked_on,
            "example": model or (name if by_name else adapter.example),
            "trained_on": adapter.trained_on,
            "sampler": adapter.sampler,
            "scorers": suited_scorers(adapter.trained_on),
        }
        rows.append(row | facts | {"about": sentence(_about(adapter))})
    if model is not None and is_gguf(model):
        card = gguf_card(gguf_path(model)) | {"would be loaded as": _loaded_as(model, catalog)}
        rows = [row | {"file": card} for row in rows]
    if advise and model is not None:
        rows = [row | {"advice": _advice(model, catalog)} for row in rows]
    _finish("models", rows, problems, None if as_json else show_models)


def _advice(model: str, catalog: Catalog) -> Rows:
    """Return what each type of weights takes here. Raises InputError for other models than
    checkpoints.
    """
    from dise_adapters.predictor import CheckpointPredictor
    from dise_app.terminal.progress import progress_bar
    from dise_core import EngineConfig

    predictor = catalog.load_model(model, EngineConfig())
    if not isinstance(predictor, CheckpointPredictor):
        raise InputError(
            f"--advise tries the layers of a checkpoint, and {model} is none", "advise"
        )
    with progress_bar(1):
        return list(map(asdict, predictor.advice()))


def _opened(entry: Entry[Any], kind: Kind[Any]) -> object:
    """Return what is listed of an entry: its class, or where it is. What a third party
    names by its place is imported; ours may need an extra. Raises PluginError.
    """
    if kind.holds_classes:
        return entry.load()
    if not entry.is_built_in:
        entry.load()
    return entry.value


def _loaded_as(model: str, catalog: Catalog) -> str:
    """Return the type that a file's weights would get, or why it cannot be loaded, as far
    as its head tells.
    """
    from dise_core import EngineConfig

    try:
        predictor = catalog.load_model(model, EngineConfig())
        return str(getattr(predictor, "dtype", "its adapter does not tell"))
    except Exception as error:  # a third party's adapter may raise anything
        reason = str(error) if isinstance(error, DiseError) else error_line(error)
        return f"cannot be loaded: {reason:.300}"


def _kind_of(title: str) -> Kind[Any]:
    """Return the kind of that title, or with that word in it; - may stand for a space."""
    words = title.replace("-", " ").removesuffix("s")
    for kind in KINDS:
        names = (kind.title, *kind.title.split())
        if words in [name.removesuffix("s") for name in names]:
            return kind
    raise UnknownNameError("kind", title, TITLES)


def _about(value: object) -> str:
    """Return a class's or function's docstring, and of another value where it is."""
    return value if isinstance(value, str) else inspect.getdoc(value) or ""


def _suits(value: object) -> str:
    """Return what a strategy is recommended for, if it says so."""
    return value.suits if isinstance(value, type) and issubclass(value, Strategy) else ""


def _finish(
    subject: str,
    rows: Rows,
    problems: Sequence[PluginError],
    show: Callable[[Rows], None] | None,
    **facts: object,
) -> None:
    """Print rows, as JSON with the facts without `show`, and problems. Raises
    typer.Exit(1) for any.
    """
    listed = [{"plugin": problem.plugin, "problem": str(problem)} for problem in problems]
    if show is None:
        print(json.dumps({subject: rows, "problems": listed, **facts}, ensure_ascii=False))
    elif rows:
        show(rows)
    for problem in problems:
        tell(str(problem))
    if problems:
        raise typer.Exit(1)
