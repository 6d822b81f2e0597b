"""Runs the sections over models, each in a process of its own; writes report.md after each."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Fields = dict[str, Any]

DONE, FAILED, MORE = 0, 1, 3  # how a section ended: MORE is left to do, for want of time

PAGE = Path(__file__).with_name("README.md").read_text()
ABOUT = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", PAGE, re.MULTILINE))
"""What each section shows on real weights."""

SCORES = [
    *("dise:last-10", "dise:full", "mc:response:num_samples=1", "mc:response:num_samples=32"),
    *("dise:response-text", "written:response-text", "written:last-10", "shadow:response-text"),
    *("written:last-10:signal=entropy", "written:response-text:signal=margin"),
    *("interleaved:response-text:k=2", "mc:response-text:num_samples=3,spread=gauss"),
]
"""Those of the paper's tables, then those of docs/results.md."""

FIGURES = {
    "likelihood": ("candidates", "accuracy"), "roc-auc": ("answers", "auroc_pooled"),
    "best-of-n": ("answers", "best_of_n"), "which-scorer": ("answers", "auroc_pooled"),
    "lengths": ("lengths", "accuracy"),
}  # fmt: skip
"""The run of `dise eval` that a section reports, and the figure."""

RUNS = {
    "candidates": ("likelihood", ["arc-challenge", "countdown-choice"], "countdown-choice"),
    "answers": ("uncertainty", ["gsm8k", "countdown"], "countdown-short"),
    "lengths": ("compare", ["gsm8k", "countdown"], "countdown-short"),
}
"""The verb, the data sets, of which the first that can be read counts, and the embedded models'."""


def read(file: Path) -> Fields:
    """Return a JSON file's fields; none without the file."""
    found: Fields = json.loads(file.read_text()) if file.exists() else {}
    return found


def ended(words: Sequence[object], minutes: float, log: Path) -> tuple[int, str]:
    """Return how a command ended, by Ctrl-C once its time is over, and what it said last."""
    with log.open("w") as said:
        process = subprocess.Popen([*map(str, words)], stdout=said, stderr=said)
    try:
        code = process.wait(60 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        code = MORE if process.wait() == 130 else process.returncode
    lines = log.read_text(errors="replace").strip().splitlines()
    return code, f"exit status {code}: {lines[-1] if lines else ''}"


def options_of(args: argparse.Namespace, verb: str, output: Path) -> list[object]:
    """Return a verb's own options."""
    if verb == "compare":
        ways = {"fixed": {"length": "fixed"}, "dise-flexible": {"length": "dise-flexible"}}
        shared = {"max_tokens": 32 if args.embedded else 128}
        (output / "ways.json").write_text(json.dumps({"shared": shared, "ways": ways}))
        return [output / "ways.json"]
    if verb != "uncertainty":
        return []
    embedded = "--max-tokens 48 --tokens-per-step 8 --temperature 1.5"
    drawn = embedded if args.embedded else "--max-tokens 128"
    return [*drawn.split(), *(f"--score={score}" for score in SCORES)]


def evaluated(args: argparse.Namespace, model: str, folder: Path) -> tuple[int, str]:
    """Go on with the run of a section, over the first data set that can be read."""
    name, figure = FIGURES[folder.name]
    verb, datasets, embedded = RUNS[name]
    code, said = DONE, ""
    for dataset in [embedded] if args.embedded else datasets:
        output = folder.parent / name / dataset
        output.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "dise", "eval", verb, *options_of(args, verb, output)]
        words += ["--model", model, "--dataset", dataset, "--limit", args.limit, *args.load]
        # Of few questions at once more are answered, and kept, when the time is over.
        words += ["--max-num-seqs", 64 if args.embedded else 12]
        if args.data and (file := args.data / f"{dataset}.jsonl").exists():
            words += ["--data", file]
        journal = output / "journal.jsonl"
        before = journal.stat().st_size if journal.exists() else 0
        if not (output / "results.json").exists():
            code, said = ended([*words, "--output", output], args.minutes, output / "log")
        if code == MORE and before == journal.stat().st_size:
            return FAILED, f"No question was answered within {args.minutes} minutes: give more."
        if code == DONE:
            wanted = embedded if args.embedded else datasets[0]
            keep(folder, figure, read(output / "results.json"), wanted)
        if code == DONE or "from the hub" not in said:
            break
    return code, said


def keep(folder: Path, figure: str, results: Fields, wanted: str) -> None:
    """Write a section's figures, and of what data: `wanted`, or another that could be read."""
    labels = SCORES[:4] if folder.name in ("roc-auc", "best-of-n") else list(results["figures"])
    rows = {label: dict(results["figures"][label][figure]) for label in labels}
    for label, row in rows.items():
        row["the_paper"] = results["figures"][label].get("the_paper")
    summary = f"{results['dataset']} ({results['source']}), {results['num_questions']} questions: "
    if results["dataset"] != wanted:
        summary = f"for want of {wanted}: {summary}"
    summary += "; ".join(f"{label} {told(row)}" for label, row in rows.items())
    (folder / "result.json").write_text(json.dumps({"summary": summary, "rows": rows}))


def told(row: Fields) -> str:
    """Return a figure with its interval, and the paper's."""
    paper = "" if row["the_paper"] is None else f", the paper {row['the_paper']:.3f}"
    if row["value"] is None:
        return f"none, of too few right or wrong answers{paper}"
    if row["low"] is None:
        return f"{row['value']:.3f}{paper}"
    return f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]{paper}"


def go_on(args: argparse.Namespace, model: str, folder: Path) -> int:
    """Go on with a section of a model unless it is done, and note how it ended."""
    if (folder / "result.json").exists():
        return DONE
    folder.mkdir(parents=True, exist_ok=True)
    started, state = time.monotonic(), read(folder / "state")
    if folder.name in FIGURES:
        code, said = evaluated(args, model, folder)
    else:
        shared = ("minutes", "embedded", "dtype", "block_size", "limit")
        options = {name: getattr(args, name) for name in shared}
        options |= {"model": model, "folder": str(folder)}
        probes = [sys.executable, Path(__file__).with_name("probes.py"), folder.name]
        code, said = ended([*probes, json.dumps(options)], 2 * args.minutes + 1, folder / "log")
    code = code if code in (DONE, MORE) else FAILED
    seconds = round(state.get("seconds", 0) + time.monotonic() - started, 1)
    failure = said if code == FAILED else None
    (folder / "state").write_text(json.dumps({"seconds": seconds, "failure": failure}))
    return code


def impersonal(text: str) -> str:
    """Return a text without folders, the machine's name and the user's."""
    text = re.sub(r"(?<![\w/<:.])~?/(?:[^\s/\"'`|]+/)+", "", text)
    names = [re.escape(name) for name in (socket.gethostname(), getpass.getuser())]
    return re.sub(rf"\b({'|'.join(names)})\b", "-", text)


def report(args: argparse.Namespace) -> None:
    """Write report.md: what every section of every model found, to read and as JSON."""
    cpus = Path("/proc/cpuinfo")
    processor = re.search(r"model name\s*: (.+)", cpus.read_text() if cpus.exists() else "")
    facts: Fields = {"processor": processor[1] if processor else platform.machine()}
    facts |= {"cores": os.cpu_count(), "python": platform.python_version()}
    for name in ("dise", "torch", "transformers", "tokenizers", "numpy"):
        facts[name] = version(name)
    lines = ["# Real weights", "", *(f"- {name}: {value}" for name, value in facts.items())]
    models: dict[str, Fields] = {}
    for folder in sorted(filter(Path.is_dir, args.out.iterdir())):
        lines += ["", f"## {folder.name}"]
        for name, about in ABOUT.items():
            result, state = read(folder / name / "result.json"), read(folder / name / "state")
            models.setdefault(folder.name, {})[name] = {**result, **state}
            summary = result.get("summary") or state.get("failure") or "not finished"
            lines += ["", f"### {name}", "", f"On real weights: {about}", ""]
            lines += [f"**{summary}** ({state.get('seconds', 0)} s)"]
    data = json.dumps({"facts": facts, "models": models}, indent=1)
    lines += ["", "```json", data, "```", ""]
    (args.out / "report.md").write_text(impersonal("\n".join(lines)))


def main() -> int:
    """Go through the sections; return FAILED or MORE if any ended so."""
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("models", nargs="*", help="folders or hub ids")
    parser.add_argument("--embedded", action="store_true", help="ask what embedded models know")
    parser.add_argument("--section", choices=ABOUT, help="this one alone, once")
    parser.add_argument("--list", action="store_true", help="name the sections")
    for name, kind in {
        "out": Path,
        "minutes": float,
        "limit": int,
        "data": Path,
        "dtype": str,
    }.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--block-size", type=int)
    parser.set_defaults(out=Path("real-weights"), minutes=9.0, dtype="auto")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name}: {about}" for name, about in ABOUT.items()))
        return DONE
    args.limit = args.limit or (20 if args.embedded else 32)
    args.load = ["--dtype", args.dtype]
    if args.block_size is not None:
        args.load += ["--model-args", f"block_size={args.block_size}"]
    spec, codes = find_spec("dise_adapters"), {DONE}
    if args.embedded and not args.models and spec and spec.origin:
        embedded = Path(spec.origin).with_name("embedded")
        args.models = [str(embedded / name) for name in ("countdown", "countdown_blocks")]
    if not args.models:
        parser.error("Give a model's folder or hub id, or --embedded for those that come along.")
    for model in args.models:
        for name in [args.section] if args.section else ABOUT:
            folder, code = args.out / Path(model).resolve().name / name, MORE
            while code == MORE:
                code = go_on(args, model, folder)
                report(args)
                if args.section:
                    break
            codes.add(code)
            ending = {DONE: "done", FAILED: "failed", MORE: "unfinished"}[code]
            print(folder.parent.name, name, ending, flush=True)
    return FAILED if FAILED in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
