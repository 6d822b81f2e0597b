"""Measure calibrated decisions: the calibration error of the embedded models' own probabilities on
held-out problems, and by a calibration fitted on as many others.

python benchmarks/decisions_calibrated.py [--count 2000] [--folder FOLDER]

Of a word problem are asked its operation, the sign after its first number, and whether the answer
is N: the equation of N against the sentence by which the model turns other texts down. Of a
Countdown problem, which of the four signed sums reaches the target, written as steps, and whether a
given text does, against one that reaches nothing. Half of the Ns and of the given texts are wrong.
No model was trained on a problem, and no problem is in both halves. `dise decide` asks, and `dise
calibrate --decisions` fits. The figures of a predicate are those of "yes", the others those of the
confidence that the answer is right.
"""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from command import Parser, head, row
from structured import word_problems

from dise_core.records import Record
from dise_decide.calibrating import DecidedLine, labelled, labels_of
from dise_decide.calibration import DecisionCalibration, Temperature, mapped
from dise_decide.fitting import events
from dise_eval.calibration.rows import records
from dise_eval.datasets.dataset import Problem
from dise_eval.datasets.questions import load
from dise_eval.statistics.metrics import adaptive_ece, ece

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
TURNED_DOWN, NOTHING = "I only solve word problems.", "1+1=2<answer>1+1</answer>"


def asked(prompt: str, choice: Record, right: object, yes: str, no: str, is_so: bool) -> Record:
    """Return a line for `dise decide`, with labels."""
    questions = [
        {"type": "choice", "name": "which", **choice},
        {"type": "predicate", "name": "is it", "instructions": "", "yes": yes, "no": no},
    ]
    return {"input": prompt, "questions": questions, "labels": {"which": right, "is it": is_so}}


def of_words(problem: Problem, random: Random) -> Record:
    """Return the questions about a word problem."""
    x, sign, y = str(problem.row["Equation"]).strip("() ").split()
    one, other, is_so = int(float(x)), int(float(y)), random.random() < 0.5
    others = [name for name in "+-*" if name != sign and SIGNS[name](one, other) >= 0]
    given = sign if is_so else random.choice(others)
    equation = f"{one} {given} {other} = {SIGNS[given](one, other)}"
    choice = {"instructions": str(one), "choices": list(SIGNS)}
    return asked(problem.prompt, choice, sign, equation, TURNED_DOWN, is_so)


def of_countdown(problem: Problem, random: Random) -> Record:
    """Return the questions about a Countdown problem."""
    steps = [text.partition("<")[0] for text in problem.candidates]
    is_so = random.random() < 0.5
    wrong = [place for place in range(len(steps)) if place != problem.right]
    given = problem.candidates[problem.right if is_so else random.choice(wrong)]
    choice = {"instructions": "", "choices": steps}
    return asked(problem.prompt, choice, steps[problem.right], given, NOTHING, is_so)


def lines(model: str, count: int) -> list[Record]:
    """Return the questions about so many different problems."""
    words = model == "word-problems"
    asked = word_problems(2 * count) if words else load("countdown-choice", limit=2 * count)
    problems = {problem.prompt: problem for problem in asked.items}.values()
    questions_of = of_words if words else of_countdown
    return [questions_of(problem, Random(problem.id)) for problem in [*problems][:count]]


def dise(*arguments: object) -> None:
    """Run the command."""
    command = [sys.executable, "-m", "dise", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(model: str, count: int, folder: Path) -> None:
    """Print a row for each question about the model's problems."""
    every = lines(model, 2 * count)
    for name, part in (("fit", every[::2]), ("test", every[1::2])):
        path = folder / f"{model}-{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in part))
        ask = ("--layout", "cloze", "--model", model, "--input", path, "--overwrite")
        dise("decide", *ask, "--output", folder / f"{model}-{name}-raw.jsonl")
    file = folder / f"{model}.json"
    dise(
        "calibrate",
        folder / f"{model}-fit-raw.jsonl",
        "--decisions",
        "--output",
        file,
        "--overwrite",
    )
    calibration = DecisionCalibration.load(file)
    rows = [
        DecidedLine.model_validate(one) for _, one in records(folder / f"{model}-test-raw.jsonl")
    ]
    for name, fit in calibration.names.items():
        group = [one for one in labelled(rows) if one[0].name == name]
        held_out, cells = labels_of(group), list[str]()
        for map_ in (None, fit.map):
            told = events(group[0][0].type, map_, held_out)
            errors = (error(told.scores, told.is_right) for error in (ece, adaptive_ece))
            cells += [f"{error:.3f}" for error in errors]
        shares, _ = mapped(fit.map, held_out.scores)
        right = (shares.argmax(axis=1) == held_out.is_right.argmax(axis=1)).mean()
        method = "none" if fit.map is None else fit.map.method
        if isinstance(fit.map, Temperature) and fit.map.top is not None:
            method += ", isotonic top"
        row(f"{model}, {name}", fit.num_labels, len(group), method, f"{right:.1%}", *cells)


def main() -> None:
    """Run the benchmark."""
    parser = Parser(__doc__)
    parser.add_argument("--count", type=int, default=2000, help="problems of each half")
    parser.add_argument("--folder", type=Path, help="where to keep the files")
    options = parser.options(count=220)
    head("question", "labels", "held out", "map", "right", "ECE", "adaptive", "calibrated: ECE",
         "adaptive")  # fmt: skip
    with TemporaryDirectory() as temporary:
        for model in ("word-problems", "countdown"):
            measure(model, options.count, options.folder or Path(temporary))


if __name__ == "__main__":
    main()
