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

VerbFunction = Callable[..., None]

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
    class's own, but for those `unfilled`, which the verb sets itself. without: fields that
    are no options here, each with its reason. panel: the heading of fields that PANELS do
    not know. more: further classes.
    """

    def __init__(
        self,
        params: type[Params],
        without: Mapping[str, str] | None = None,
        panel: str | None = None,
        more: Iterable[type[Params]] = (),
        unfilled: Collection[str] = (),
        **defaults: object,
    ) -> None:
        self.without = without or {}
        self._defaults = {name: defaults[name] for name in defaults.keys() - unfilled}
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
        chosen_names = {
            name: settings(values[flag]) if get_origin(field.annotation) is dict else values[flag]
            for flag, (name, field) in self._fields.items()
            if flag in explicit
        }
        args = values["model_args"] if self._model_args and "model_args" in explicit else ()
        return {**self._defaults, **_model_args(args, self._model_args), **chosen_names}


OptionTable = Own | FieldOptions
Table = OptionTable | Callable[[], OptionTable]
"""One to which plugins add is a function, called where a verb is made: who brings verbs is
imported before anybody knows what else it brings.
"""


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


class Verb:
    """A verb, whose options are made once typer asks for its signature."""

    def __init__(
        self, function: VerbFunction, most_used: Sequence[str], tables: Mapping[str, Table]
    ) -> None:
        functools.update_wrapper(
            self, function, ("__module__", "__name__", "__qualname__", "__doc__")
        )
        self.__annotations__ = {}  # typer asks for them, and reads those of the signature
        self._function, self._most_used, self._given = function, most_used, tables

    @functools.cached_property
    def _tables(self) -> dict[str, OptionTable]:
        return {n: table() if callable(table) else table for n, table in self._given.items()}

    @functools.cached_property
    def _own(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self._function, eval_str=True).parameters
        return {name: own for name, own in parameters.items() if name != "parts"}

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        options = {n: its for table in self._tables.values() for n, its in table.options.items()}
        first = {name: options[name] for name in self._most_used if name not in self._own}
        signature = {"context": (typer.Context, REQUIRED)}
        signature |= {
            name: (parameter.annotation, parameter.default) for name, parameter in self._own.items()
        }
        signature |= first | options | {"debug": DEBUG}
        keyword = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature(
            [
                inspect.Parameter(name, keyword, default=default, annotation=kind)
                for name, (kind, default) in signature.items()
            ]
        )

    @functools.cached_property
    def headings(self) -> dict[str, str | None]:
        """The headings of its options in the help, by name."""
        pairs = (pair for table in self._tables.values() for pair in table.headings.items())
        return dict(pairs) | dict.fromkeys(self._most_used, MOST_USED)

    @property
    def left_out(self) -> dict[str, str]:
        """Options that its tables leave out, each with its reason."""
        return {n: why for table in self._tables.values() for n, why in table.without.items()}

    def __call__(self, context: typer.Context, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        explicit = {n for n, source in sources.items() if source and source.name != "DEFAULT"}
        read = {part: table.read(values, explicit) for part, table in self._tables.items()}
        parts = {"parts": Parts(command=self._function.__name__, **read)} if self._tables else {}
        self._function(**{name: values[name] for name in self._own}, **parts)


def verb(*most_used: str, **tables: Table) -> Callable[[VerbFunction], Verb]:
    """Return a decorator that gives a verb the tables' options after its own, which it
    gets as its argument `parts`, and --debug, which main reads. most_used: the options of
    its first group, its own among them.
    """
    return lambda function: Verb(function, most_used, tables)
