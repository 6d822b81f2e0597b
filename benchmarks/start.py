"""Where the time of `dise generate` goes from a cold shell, and that of another version.

python benchmarks/start.py [--beside FOLDER] [--rounds 9]

The first table has the medians of a command that takes one step at a time, in the order in which it
needs them. The second, under --beside, has those of the whole command: of FOLDER, another source
tree, and of this one, in turn. Neither counts the first round, which writes the bytecode.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from pathlib import Path

from command import Parser, head, row

COMMAND = "from dise_app.cli.main import main; main()"
HERE = Path(__file__).parents[1]

STAGES = """
import time; times = [("interpreter", time.time())]
def done(stage): times.append((stage, time.time()))
from dise_app.terminal.heap import kept
with kept():
    import numpy, pydantic; done("numpy, pydantic")
    import dise_core; done("dise_core")
    import dise_app.cli.generate; done("plugins and command")
    import dise_app.cli.answer as answer, dise_app.terminal.live; done("rich")
    import torch; done("torch")
import atexit, json, sys
def told():
    done("writing the answer")
    print(json.dumps(times), file=sys.stderr)
opened, load_for = answer.opened, answer.load_for
def opened_timed(*options):
    done("reading the options")
    return opened(*options)
def loaded_timed(*request):
    load_for(*request)
    done("reading the model")
    atexit.register(told)
answer.opened, answer.load_for = opened_timed, loaded_timed
from dise_app.cli.main import main
main()
"""


def environment(tree: Path, folder: str) -> dict[str, str]:
    """Return that of a process of a tree, whose plugins the folder is made to name."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    metadata = Path(folder, tree.name, "dise-0.dist-info")
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Name: dise\nVersion: {project['version']}\n")
    plugins = [f"{name} = {home}" for name, home in project["entry-points"]["dise"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[dise]", *plugins]))
    paths = (tree, tree / "strategies", tree / "adapters", metadata.parent)
    kept = {name: its for name, its in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run(code: str, prompt: list[str], variables: dict[str, str]) -> tuple[float, float, str]:
    """Return the seconds that a process took, by the clock and of a processor, and what it told."""
    before, started = os.times(), time.time()
    command = [sys.executable, "-P", "-c", code, "generate", *prompt]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    seconds, after = time.time() - started, os.times()
    if done.returncode:
        sys.exit(done.stderr)
    children = after.children_user + after.children_system
    return seconds, children - before.children_user - before.children_system, done.stderr


def stages(prompt: list[str], variables: dict[str, str], rounds: int) -> None:
    """Print the medians of each stage, in seconds."""
    taken: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        last = started = time.time()
        seconds, _, told = run(STAGES, prompt, variables)
        times = [*json.loads(told), ("exit", started + seconds)]
        for stage, end in times if number else []:
            taken[stage].append(end - last)
            last = end
    head("stage", "seconds")
    for stage, values in taken.items():
        row(stage, f"{statistics.median(values):.3f}")


def beside(trees: list[Path], prompt: list[str], folder: str, rounds: int) -> None:
    """Print the medians of the whole command in each tree, and those of the ratios."""
    variables = [environment(tree, folder) for tree in trees]
    pairs = [[run(COMMAND, prompt, its)[:2] for its in variables] for _ in range(rounds + 1)][1:]
    head("", *(tree.name for tree in trees), "ratio")
    for index, title in enumerate(("seconds by the clock", "seconds of a processor")):
        before, after = ([pair[tree][index] for pair in pairs] for tree in (0, 1))
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        shown = (statistics.median(values) for values in (before, after, ratios))
        row(title, *(f"{value:.2f}" for value in shown))


def main() -> None:
    """Print the tables."""
    parser = Parser(__doc__)
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--max-tokens", default="48")
    options = parser.options(rounds=1, max_tokens="16")
    prompt = ["83,18,75 -> 10", "--max-tokens", options.max_tokens, "--block-length", "16"]
    with tempfile.TemporaryDirectory() as folder:
        stages(prompt, environment(HERE, folder), options.rounds)
        if options.beside:
            print()
            beside([options.beside.resolve(), HERE], prompt, folder, options.rounds)


if __name__ == "__main__":
    main()
