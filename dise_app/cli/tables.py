"""A verb's options in groups, each with its heading in the help."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from dise_app.cli.grouped import METAVARS, MOST_USED, RARE, without_none
from dise_app.files.texts import json_or_text, settings
from dise_core import EngineConfig, InputError, SamplingParams, ScoringParams
from dise_core.errors import did_you_mean
from dise_core.params.base import Params
from dise_core.params.marks import Mark, Opposite
from dise_core.plugins.kinds import KINDS, STRATEGIES, Kind

OptionType = tuple[Any, Any]
"""An option's type, annotated for typer, and its default or REQUIRED."""

MODEL_ARGS = (
    "What few need to say of a model: a=1,b=2 gives two keys, and PART.KEY=VALUE one of an object; "
    "may be repeated. Keys:"
)

Verb = Callable[..., None]

REQUIRED = inspect.Parameter.empty

MODEL = "How the model is loaded and run"

PANELS: Mapping[type[Params], str] = {
    ScoringParams: "How the answer is scored",
    SamplingParams: "How the answer is written",
    EngineConfig: MODEL,
}
"""The help's headings for these classes' fields; the first class with a field wins."""


class Parts(SimpleNamespace):
    """The verb's name as `command`, and the values of each table by its name."""


def option(
    annotation: Any, about: str, default: object = None, *flags: str, **more: Any
) -> OptionType:
    """Return an option of this type. flags: where they are not those of its name."""
    return Annotated[annotation, typer.Option(*flags, help=about, **more)], default


DEBUG = option(bool, "Show tracebacks.", False, "--debug")


class Own:
    """Options that only the command has, by the names of their parameters."""

    without: Mapping[str, str] = {}

    def __init__(self, panel: str | None = None, /, **options: OptionType) -> None:
        self.options = options
        self.headings = dict.fromkeys(options, panel)

    def read(self, values: Mapping[str, Any], _: Collection[str]) -> dict[str, Any]:
        """Return the options' values by their names."""
        return {name: values[name] for name in self.options}


class FieldOptions:
    """The fields of a class of params/ as options, where its marks let the command have
    them. The verb gets those that the user named, and `defaults`, which replace the
    class's own. without: fields that are no options here, each with its reason. panel: the
    heading of fields that PANELS do not know. more: further classes.
    """

    def __init__(
        self,
        params: type[Params],
        without: Mapping[str, str] | None = None,
        panel: str | None = None,
        more: Iterable[type[Params]] = (),
        **defaults: object,
    ) -> None:
        self.without, self._defaults = without or {}, defaults
        self._fields: dict[str, tuple[str, FieldInfo]] = {}
        self.options: dict[str, OptionType] = {}
        self.headings: dict[str, str | None] = {}
        fields = [item for cls in (params, *more) for item in cls.model_fields.items()]
        self._model_args = {n: field for n, field in fields if Mark.MODEL_ARG in field.metadata}
        hidden = {*self.without, *self._model_args}
        for name, field in fields:
            if name in hidden or Mark.NOT_OF_THE_COMMAND in field.metadata:
                continue
            # Settings are given one at a time.
            flag = name.removesuffix("s") if name.endswith("_settings") else name
            default = field.get_default(call_default_factory=True)
            panels = (PANELS[cls] for cls in PANELS if name in cls.model_fields)
            self._fields[flag] = name, field
            self.options[flag] = _option(name, field, defaults.get(name, default))
            self.headings[flag] = RARE if Mark.RARE in field.metadata else next(panels, panel)
        if self._model_args:
            about = f"{MODEL_ARGS} {', '.join(sorted(self._model_args))}."
            self.options["model_args"] = option(list[str] | None, about, metavar="KEY=VALUE")
            self.headings["model_args"] = RARE

    def read(self, values: Mapping[str, Any], explicit: Collection[str]) -> dict[str, Any]:
        """Return the defaults, and the values of those that the user named."""
        for kind in STRATEGIES:
            if kind.option in explicit and kind.option in self._fields:
                _use_classes(kind, values[kind.option])
        args = values["model_args"] if "model_args" in explicit and self._model_args else ()
        return (
            self._defaults
            | _model_args(args, self._model_args)
            | {
                name: settings(values[flag])
                if get_origin(field.annotation) is dict
                else values[flag]
                for flag, (name, field) in self._fields.items()
                if flag in explicit
            }
        )


OptionTable = Own | FieldOptions
Table = OptionTable | Callable[[], OptionTable]
"""One to which plugins add is a function, called where a verb is made: who brings verbs is
imported before anybody knows what else it brings.
"""

ASKED = ("__signature__", "__annotations__", "headings", "left_out")
"""What typer and the help ask of a verb."""


def _model_args(args: Iterable[str], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return what --model-args say. Raises InputError for a key that is none."""
    pairs = [pair for arg in args for pair in re.split(r",(?=[\w.]+=)", arg)]
    texts = [name for name in fields if without_none(fields[name].annotation) is str]
    values = settings(pairs, texts)
    for name in values.keys() - fields.keys():
        raise InputError(
            f"--model-args has no key {name!r:.80}{did_you_mean(name, fields) or '.'} Its keys: "
            f"{', '.join(sorted(fields))}",
            "model_args",
        )
    return values


def _use_classes(kind: Kind[Any], names: str) -> None:
    from dise_core.plugins.discovery import use_class

    for name in names.split("+"):
        use_class(kind, name.strip())


def _option(name: str, field: FieldInfo, default: object) -> OptionType:
    annotation, about = without_none(field.annotation), " ".join((field.description or "").split())
    more: dict[str, Any] = {"autocompletion": _completion_of(name)}
    flags = []
    if not _is_plain(annotation):
        about = f"{about} [default: {default}]" if default is not None else about
        kinds = [METAVARS[part] for part in get_args(annotation) if part in METAVARS]
        more = {"parser": json_or_text, "metavar": "|".join([*kinds, "JSON"])}
        annotation, default = str, None
    elif (origin := get_origin(annotation)) in (dict, tuple):
        about, default = f"{about.rstrip('.')}; may be repeated.", None
        more |= {"metavar": "KEY=VALUE"} if origin is dict else {}
        item = str if origin is dict else without_none(get_args(annotation)[0])
        annotation = list[item]  # type: ignore[valid-type]
    elif field.default is not None and annotation is not field.annotation:
        more |= {"parser": _number_or_none, "metavar": "INTEGER|none"}
    elif annotation is bool and default is False:
        flags = ["--" + name.replace("_", "-")]
    opposite = next((mark.name for mark in field.metadata if isinstance(mark, Opposite)), None)
    if opposite is not None:
        flags = [f"--{name}/--{opposite}"]
    annotation = annotation | None if default is None else annotation
    return option(annotation, about, default, *flags, **more)


def _completion_of(field: str) -> Callable[[str], list[str]] | None:
    plural = next((kind.plural for kind in KINDS if kind.option == field), None)

    def complete(incomplete: str) -> list[str]:
        from dise_core.plugins.discovery import installed_plugins

        return [n for n in getattr(installed_plugins(), str(plural)) if n.startswith(incomplete)]

    return None if plural is None else complete


def _is_plain(annotation: Any) -> bool:
    """Return whether typer reads the type; a plugin's option may have any."""
    if get_origin(annotation) is Literal:
        return all(isinstance(choice, str) for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return without_none(get_args(annotation)[0]) in METAVARS
    return annotation in (*METAVARS, bool) or get_origin(annotation) is dict


def _number_or_none(text: str | int) -> int | None:
    try:
        return None if text == "none" else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor none") from None


def verb(*most_used: str, **tables: Table) -> Callable[[Verb], Verb]:
    """Return a decorator that gives a verb the tables' options after its own, which it
    gets as its argument `parts`, and --debug, which main reads. most_used: the options of
    its first group, its own among them.
    """

    def decorate(function: Verb) -> Verb:
        assigned = ("__module__", "__name__", "__qualname__", "__doc__")
        late = _Late(lambda: _made(function, most_used, tables))
        return functools.wraps(function, assigned)(late)

    return decorate


class _Late:
    """A verb that is made once typer asks for its options."""

    def __init__(self, make: Callable[[], Verb]) -> None:
        self._make = make

    @functools.cached_property
    def _verb(self) -> Verb:
        return self._make()

    def __call__(self, *args: Any, **values: Any) -> None:
        self._verb(*args, **values)

    def __getattr__(self, name: str) -> Any:
        if name not in ASKED:
            raise AttributeError(f"a verb has no {name!r}")
        vars(self).update({asked: getattr(self._verb, asked) for asked in ASKED})
        return vars(self)[name]


def _made(function: Verb, most_used: Sequence[str], given: Mapping[str, Table]) -> Verb:
    tables = {name: table() if callable(table) else table for name, table in given.items()}
    options = {name: its for table in tables.values() for name, its in table.options.items()}
    own = inspect.signature(function, eval_str=True).parameters.keys() - {"parts"}
    first = [name for name in most_used if name not in own]
    ordered = {name: options[name] for name in (*first, *options)} | {"debug": DEBUG}
    headings = {name: head for table in tables.values() for name, head in table.headings.items()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in {"context": (typer.Context, REQUIRED), **ordered}.items()
    ]

    own_parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items()
        if name != "parts"
    ]

    @functools.wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        explicit = {n for n, source in sources.items() if source and source.name != "DEFAULT"}
        read = {part: table.read(values, explicit) for part, table in tables.items()}
        parts = {"parts": Parts(command=function.__name__, **read)} if tables else {}
        function(**{p.name: values[p.name] for p in own_parameters}, **parts)

    signature = inspect.Signature([parameters[0], *own_parameters, *parameters[1:]])
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    vars(command).update(
        __signature__=signature,
        headings=headings | dict.fromkeys(most_used, MOST_USED),
        left_out=dict(item for table in tables.values() for item in table.without.items()),
    )
    return command
