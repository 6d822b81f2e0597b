"""The command's verbs, which plugins bring: the built-in ones, too."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dise_app.cli.grouped import GroupedCommand, first_paragraph, write_rows
from dise_app.terminal.lines import tell
from dise_core import PluginError
from dise_core.errors import did_you_mean
from dise_core.plugins.discovery import installed_plugins
from dise_core.plugins.entry import Entry, named
from dise_core.struck import struck


class VerbGroup(TyperGroup):
    """The verbs of the installed plugins, each imported when it is needed."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        return list(installed_plugins().commands)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002
        """Return the verb. For an unknown one, name broken plugins: it may be theirs."""
        catalog = installed_plugins()
        if (entry := named(catalog.commands, cmd_name)) is not None:
            return _command(cmd_name, entry)
        for problem in catalog.problems:
            tell(str(problem))
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the arguments' verb. An unknown one suggests the nearest."""
        verbs = self.list_commands(ctx)
        if args[0] not in verbs and (sentence := struck("verb", args[0])):
            ctx.fail(sentence)
        hint = "" if args[0] in verbs else did_you_mean(args[0], verbs)
        if hint and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002
        """List the verbs with their first paragraphs, without building any."""
        verbs = installed_plugins().commands
        with formatter.section("Commands"):
            write_rows(formatter, [(name, _about(entry)) for name, entry in verbs.items()])


def _about(entry: Entry[Any]) -> str:
    try:
        verb = entry.load()
    except PluginError as problem:
        return f"Broken: {problem}"
    text = verb.info.help if isinstance(verb, typer.Typer) else inspect.getdoc(verb)
    return first_paragraph(text if isinstance(text, str) else "")


def _command(name: str, entry: Entry[Any]) -> Any:
    """Return a verb as click has it; a broken one says so when it is called."""
    try:
        return _click_command(name, entry.load())
    except PluginError as error:
        problem = error
    except Exception as error:
        if entry.is_built_in:
            raise
        problem = entry.failure(f"the verb {name!r} cannot be made", error)

    def fail() -> None:
        raise problem

    takes_all = {"ignore_unknown_options": True, "allow_extra_args": True}
    return _click_command(name, fail, context_settings=takes_all, add_help_option=False)


def _click_command(name: str, verb: typer.Typer | Callable[..., None], **settings: Any) -> Any:
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    parent.callback()(lambda: None)
    if isinstance(verb, typer.Typer):
        parent.add_typer(verb, name=name)
    else:
        parent.command(name, cls=GroupedCommand, **settings)(verb)
    return typer.main.get_group(parent).commands[name]


ABOUT = "How sure is a diffusion language model of a text?"

app = typer.Typer(
    name="dise",
    cls=VerbGroup,
    help=f"{ABOUT} Generate with it, and score its answers or any text.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"dise {version('dise')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a verb."""
