"""JSON Lines in and out: bad lines are reported and skipped, order is kept."""

import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

from dise_app.files.linefile import LineFile
from dise_app.files.lines import BUFFER, MAX_LINE, Line, encoded, lines_of, without_bom
from dise_app.files.reasons import reasons
from dise_app.files.resume import answered_lines, begin, refuse_foreign_settings
from dise_app.files.run_folder import RunFolder, settings_path
from dise_app.files.runner import Answered, P, Work
from dise_app.files.texts import refuse_existing
from dise_app.terminal.lines import tell
from dise_app.terminal.progress import close, in_order, progress_bar
from dise_core import LLM, DiseError, InputError, Plan
from dise_core.records import Fields, JsonFields

STANDARD = Path("-")


PlanOf = Callable[[Line], Plan[Answered]]
Add = Callable[[JsonFields], None]


def read_lines(path: Path, limit: int = MAX_LINE) -> Iterator[Line]:
    """Yield the non-blank lines of a file. Raises InputError if it cannot be read."""
    with _open_to_read(path) as file:
        for number, line in enumerate(lines_of(file, limit), start=1):
            text = without_bom(line) if number == 1 else line
            if text.strip():
                yield Line.read(number, text, limit)


def run_file(work: Work[P], llm: LLM, load_for: Callable[[Iterator[Plan[Answered]]], None]) -> None:
    """Answer every line of --input, and tell how many were answered. load_for: loads the
    model for plans that need it. Raises typer.Exit(1) if any line failed, InputError for
    unsuitable files, DiseError if the answers cannot be written.
    """
    resume, output = work.files["resume"], work.files["output"] or STANDARD
    run = RunFolder(output, work.settings(llm), work.usual)
    lines = _checked_lines(work.files, output)

    def plan_of(line: Line) -> Plan[Answered]:
        return (yield from work.plan_of(llm.planner, line.checked(), work.params))

    if output == STANDARD:
        load_for(map(plan_of, lines))
        problems = complete(llm, lines, plan_of, _print)
    else:
        refuse_foreign_settings(output)
        with closing(LineFile(output)) as file:
            if not (resume or work.files["overwrite"]):
                refuse_existing(output, "--resume goes on with it, --overwrite replaces it")
            records = {line.number: line.record for line in lines}
            numbers = answered_lines(file, run, records) if resume else set()
            todo = [line for line in lines if line.number not in numbers]
            load_for(map(plan_of, todo))
            begin(file, run)
            problems = complete(llm, todo, plan_of, file.add, len(numbers))
    num_failed = problems.total()
    if num_failed == len(lines) > 1:
        for reason in reasons(problems.items()):
            tell(reason)
    close(len(lines) - num_failed, num_failed, is_told=True)


def _checked_lines(files: Fields, output: Path) -> list[Line]:
    """Return the lines of --input. Raises InputError for options that do not fit."""
    path = files["input"]
    for name in ("resume", "overwrite"):
        if files[name] and output == STANDARD:
            raise InputError(f"--{name} needs --output FILE", name)
    if files["resume"] and files["overwrite"]:
        raise InputError("give either --resume or --overwrite", "resume")
    if any(_is_same(path, target) for target in (output, settings_path(output))):
        raise InputError(f"--input and --output are the same file {path}", "output")
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"--input {path} holds no line", "input")
    return lines


def complete(
    llm: LLM, lines: list[Line], plan_of: PlanOf, add: Add, num_done: int = 0
) -> Counter[str]:
    """Return why lines failed, with counts. `add` gets each line updated by its answer."""
    problems = Counter[str]()
    # Lines and a bar on one terminal would run into each other.
    is_wanted = add is not _print or not sys.stdout.isatty()
    with progress_bar(num_done + len(lines), is_wanted=is_wanted) as advance:
        advance(num_done)
        for line, outcome in in_order(llm, lines, plan_of, advance):
            try:
                add({**line.record, **outcome.unwrap().to_dict(), "line": line.number})
            except DiseError as error:
                if error is not outcome.error and not isinstance(error, InputError):
                    raise
                problems[str(error)] += 1
                tell(f"line {line.number}: {error}")
    return problems


@contextmanager
def _open_to_read(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with path.open("rb", BUFFER) as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "input") from error


def _is_same(source: Path, output: Path) -> bool:
    try:
        first = os.fstat(0) if source == STANDARD else source.stat()
        second = os.fstat(1) if output == STANDARD else output.stat()
    except OSError:
        return False
    return stat.S_ISREG(first.st_mode) and os.path.samestat(first, second)


def _print(record: JsonFields) -> None:
    line = encoded(record).decode()
    try:
        print(line, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DiseError(f"cannot write to standard output: {error.strerror}") from error
