"""What `dise plugins` and `dise models` print on the terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dise_app.terminal.lines import folded
from dise_app.terminal.styles import printable
from dise_core.plugins.entry import OWN_DISTRIBUTION
from dise_core.plugins.hookspecs import INTERFACE_VERSION
from dise_core.plugins.kinds import ENGINE, KINDS, STRATEGIES
from dise_core.records import Fields

SIGNS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
TYPES = {"boolean": "true or false", "string": "text", "texts": "JSON list", "json": "JSON"}
"""What types are called here, where the schema's word is another."""

DESCRIBED = (*STRATEGIES, ENGINE)
"""The kinds that `dise plugins` describes in a sentence."""

HEADINGS = (
    ("Models by name, for --model, and the weights each was checked on", True),
    ("Models by folder, hub id or address: adapter, example, weights checked on", False),
)


def show_plugins(rows: Sequence[Fields]) -> None:
    """Print names by kind and plugin; of strategies and engines each with its sentence,
    those that are recommended first.
    """
    console, groups = Console(highlight=False), dict[tuple[str, str], list[Fields]]()
    for row in rows:
        groups.setdefault((row["kind"], row["plugin"]), []).append(row)
    for (title, plugin), group in groups.items():
        kind = next(kind for kind in KINDS if kind.title == title)
        option = f", for --{kind.option}" if kind.option else ""
        row = group[0]
        facts = f" ({row['distribution']} {row['version']})" if row["version"] else ""
        home = "" if row["distribution"] == OWN_DISTRIBUTION else facts
        heading = f"{kind.plural.replace('_', ' ').capitalize()}{option}, from {plugin}{home}"
        if kind not in DESCRIBED:
            names = ", ".join(row["name"] for row in group)
            console.print(_hanging(heading + ":", names, "italic", console.width))
            continue
        console.print(Text(heading, style="italic"))
        for row in (row for row in group if row["suits"]):
            about = f"{row['about']} Use it for {row['suits']}."
            console.print(_hanging(f"  {row['name']}:", about, "bold", console.width))
        if any(row["suits"] for row in group):
            console.print(Text("  For research:", style="italic"))
        for row in (row for row in group if not row["suits"]):
            console.print(_hanging(f"  {row['name']}:", row["about"], "bold", console.width))
    console.print(
        f"[italic]Interface {INTERFACE_VERSION}. Settings: dise plugins --kind scorer; "
        "models: dise models[/italic]"
    )


def _hanging(name: str, about: str, style: str, width: int) -> Text:
    """Return both in lines of that width, which all but the first are indented."""
    wrapped = textwrap.wrap(
        f"{name} {about}", width, subsequent_indent="    ", break_on_hyphens=False
    )
    text = Text("\n".join(wrapped), no_wrap=True)
    text.stylize(style, 0, len(name))
    return text


def show_settings(rows: Sequence[Fields]) -> None:
    """Print strategies, each with its settings below it."""
    console = Console(highlight=False)
    for row in rows:
        console.print(f"[bold]{escape(row['name'])}[/bold]  [dim]{escape(row['plugin'])}[/dim]")
        console.print(Padding(escape(row["about"]), (0, 0, 0, 2)))
        if row["suits"]:
            console.print(Padding(escape(f"Use it for {row['suits']}."), (0, 0, 0, 2)))
        if row["problem"]:
            console.print(Padding(escape(row["problem"]), (0, 0, 0, 4)))
        table = Table("setting", "type", "default", "range", "", box=None, pad_edge=False)
        for setting in row["settings"]:
            default = "must be given" if setting["required"] else str(setting["default"])
            type_name = TYPES.get(setting["type"], setting["type"])
            bounds = ", ".join(_range(setting))
            cells = (setting["name"], type_name, default, bounds, setting["description"])
            table.add_row(*map(escape, cells))
        if table.rows:
            console.print(Padding(table, (0, 0, 0, 4)))


def _advice(rows: Sequence[Fields]) -> Table:
    """Return what each type of weights takes, a row each."""
    columns = ("128 tokens with", "GiB", "scored, s", "written, s")
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        name = f"{row['option']} (default)" if row["is_default"] else row["option"]
        times = [row["scoring"], row["writing"]]
        cells = ["not free" if time is None else f"{float(f'{time:.2g}'):g}" for time in times]
        table.add_row(name, f"{row['memory']:.1f}", *cells)
    return table


def _range(setting: Fields) -> Iterator[str]:
    """Yield a number's bounds, a text's length, or the values that are allowed."""
    if "enum" in setting:
        yield " | ".join(map(str, setting["enum"]))
    for name, sign in SIGNS.items():
        if name in setting:
            yield f"{sign} {setting[name]:.15g}"
    if "maxLength" in setting:
        yield f"at most {setting['maxLength']} characters"


def show_models(rows: Sequence[Fields]) -> None:
    """Print names, then the adapters with an example each, then the scorers."""
    console = Console(highlight=False)
    for heading, by_name in HEADINGS:
        listed = [row for row in rows if row["by_name"] == by_name]
        if listed:
            console.print(f"[italic]{heading}[/italic]")
        for row in listed:
            weights, example = row["checked_on_weights"], "" if by_name else row["example"]
            facts = (escape(example), weights and f"[dim]{weights} weights[/dim]")
            name = f"[bold]{escape(row['name'])}[/bold]"
            console.print("  ".join([name, *filter(None, facts)]), soft_wrap=True)
            console.print(Padding(escape(row["about"]), (0, 0, 0, 2), expand=False))
            if row["sampler"]:
                console.print(
                    escape(folded(f"  Sampler: {row['sampler']}", "    ")), soft_wrap=True
                )
            for word, fact in row.get("file", {}).items():
                text = f"{fact:,}" if isinstance(fact, int) else printable(str(fact))
                console.print(f"    {word}: {escape(text[:200])}", soft_wrap=True)
            if "advice" in row:
                console.print(Padding(_advice(row["advice"]), (0, 0, 0, 4)))
    console.print("[italic]Scorers by what models were trained on[/italic]")
    for trained_on, scorers in {row["trained_on"]: row["scorers"] for row in rows}.items():
        names = ", ".join(row["name"] for row in rows if row["trained_on"] == trained_on)
        advice = ", ".join(f"{scorer} if {answers}" for answers, scorer in scorers.items())
        console.print(escape(f"{trained_on or 'not known'}: {advice} ({names})"))
