"""The data sets of the paper's experiments, from the hub or a local file: each question with its
prompt and its grader.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from dise_app.evaluation.graders import CountdownGrader, Grader, MathGrader, Mode, NumberGrader
from dise_core.errors import InputError, ModelError, UnknownNameError
from dise_core.records import Fields, Record

Row = Fields

PUBLIC_PROBLEMS = "https://github.com/dllm-reasoning/d1/blob/main/dataset/countdown_cd3_test.jsonl"
"""Where the 256 Countdown problems are that the field's papers use."""

CALCULATION = re.compile(r"<<[^>]*>>")
"""A calculator annotation in a worked answer of GSM8K."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its prompt and its truth; for multiple choice the candidates and the index of
    the right one.

    A candidate is appended to the prompt as it is, so one that follows a word starts with a space.
    """

    id: str
    prompt: str
    truth: Any
    candidates: tuple[str, ...] = ()
    right: int = -1
    row: Row = field(default_factory=dict, repr=False)
    """The question's row in the data set, with the given answer if it has one."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of one experiment, and their source, which every result names."""

    dataset: Dataset
    source: str
    items: tuple[Question, ...]
    chat: bool | None = None
    """Whether prompts go through the model's chat template; None: if the model has one."""

    def grader(self, mode: Mode) -> str:
        """Return the grader's version. Raises InputError for a data set whose answers are ranked,
        not graded.
        """
        return self.dataset.grader(self.items[0], mode).version

    def graded(self, question: Question, text: str, mode: Mode) -> Record:
        """Return the verdict on a text as an answer to the question, as JSON."""
        return asdict(self.dataset.grader(question, mode).grade(text))


class UnsuitableRowError(Exception):
    """A row in the data set's format that makes no question."""


class Dataset(ABC):
    """Turns the rows of one data set into questions. `version` names the wording of its prompts."""

    name: ClassVar[str]
    version: ClassVar[str]
    row_format: ClassVar[str]
    """A row of its file, as errors show it."""
    file_at: ClassVar[str | None] = None
    """Where its file can be had, if it is not on the hub."""
    hub_id: ClassVar[str | None] = None
    hub_config: ClassVar[str | None] = None
    split: ClassVar[str] = "test"
    likelihood_selector: ClassVar[str] = "response"
    """The selector with which the paper's DiSE ranks this data set's candidates."""

    @abstractmethod
    def question(self, row: Row, number: int) -> Question:
        """Return one row as a question. Raises UnsuitableRowError for a row to skip; for one of
        another format KeyError, TypeError, AttributeError or ValueError.
        """

    def shot(self, row: Row) -> str:  # noqa: ARG002
        """Return a row as a worked example. Raises InputError for a data set without examples."""
        raise InputError(
            f"data set {self.name!r} has no worked examples; leave out --shots", "shots"
        )

    def grader(self, question: Question, mode: Mode) -> Grader:  # noqa: ARG002
        """Return the grader of a question. Raises InputError for a data set whose answers are
        ranked, not graded.
        """
        raise InputError(
            f"data set {self.name!r} is for likelihood: its answers are ranked, not graded",
            "dataset",
        )

    def drawn(self, count: int, seed: int) -> list[Row]:  # noqa: ARG002
        """Return `count` generated rows. Raises InputError for a data set that has to be read."""
        raise InputError(
            f"data set {self.name!r} is read from the hub or from a file: give --data FILE", "data"
        )


class Countdown(Dataset):
    """Numbers and a target, posed in words; the answer goes in a box."""

    name = "countdown"
    version = "instruct-1"
    row_format = '{"input": "44,19,7", "output": "56"}'
    file_at: ClassVar[str | None] = PUBLIC_PROBLEMS

    def question(self, row: Row, number: int) -> Question:
        numbers, target = _numbers(row["input"]), int(row["output"])
        return Question(f"countdown-{number}", self.prompt(numbers, target), [numbers, target])

    def prompt(self, numbers: Sequence[int], target: int) -> str:
        """Return the problem as the model reads it."""
        return (
            "Combine the numbers with +, -, * and / so that the result is the target. Use every "
            "number exactly once. Think "
            "step by step, then put the expression, without an equals sign, into \\boxed{}.\n\n"
            f"Numbers: {list(numbers)}\nTarget: {target}"
        )

    def grader(self, question: Question, mode: Mode) -> Grader:
        return CountdownGrader(question.truth[0], question.truth[1], mode)

    def drawn(self, count: int, seed: int) -> list[Row]:
        """Return problems of three numbers that a signed sum solves and that were held out from the
        embedded model's training.
        """
        random, rows = Random(seed), list[Row]()
        while len(rows) < count:
            numbers = [random.randint(1, 100) for _ in range(3)]
            target = abs(
                numbers[0]
                + random.choice((1, -1)) * numbers[1]
                + random.choice((1, -1)) * numbers[2]
            )
            if 1 <= target <= 100 and _is_held_out(numbers, target):
                rows.append(
                    {"input": ",".join(map(str, random.sample(numbers, 3))), "output": str(target)}
                )
        return rows


class CountdownShort(Countdown):
    """The same problems in the embedded model's format: 83,18,75 -> 10."""

    name = "countdown-short"
    version = "short-1"

    def prompt(self, numbers: Sequence[int], target: int) -> str:
        return f"{','.join(map(str, numbers))} -> {target}"


class CountdownAnswers(Countdown):
    """The same problems as some model was asked them, each with the answer that it gave."""

    name = "countdown-answers"
    version = "as-asked"
    row_format = '{"question": "...", "ground_truth": [[83, 18, 75], 10], "response": "..."}'
    file_at = None

    def question(self, row: Row, number: int) -> Question:
        return Question(f"countdown-{number}", row["question"], row["ground_truth"])

    def drawn(self, count: int, seed: int) -> list[Row]:
        return Dataset.drawn(self, count, seed)


class CountdownChoice(CountdownShort):
    """Four signed sums of the numbers as candidates, one of which makes the target."""

    name = "countdown-choice"
    version = "choice-1"

    def question(self, row: Row, number: int) -> Question:
        """Return a problem that a signed sum solves as a question of four choices. Raises
        UnsuitableRowError for any other.
        """
        numbers, target = _numbers(row["input"]), int(row["output"])
        random = Random(f"{numbers}->{target}")
        texts = {signs: _worked(numbers, signs) for signs in ("++", "+-", "-+", "--")}
        right = next((signs for signs, (_, value) in texts.items() if value == target), None)
        if right is None:
            a, *rest = sorted(numbers, reverse=True)
            texts = {signs: _worked([a, *rest], signs) for signs in texts}
            right = next((signs for signs, (_, value) in texts.items() if value == target), None)
        if right is None:
            raise UnsuitableRowError("no signs make the target")
        order = random.sample(sorted(texts), 4)
        candidates = tuple(texts[signs][0] for signs in order)
        return Question(
            f"countdown-{number}",
            self.prompt(numbers, target),
            target,
            candidates,
            order.index(right),
        )

    def grader(self, question: Question, mode: Mode) -> Grader:
        return Dataset.grader(self, question, mode)


class GSM8K(Dataset):
    """Grade-school word problems with one number as the answer."""

    name = "gsm8k"
    version = "boxed-1"
    row_format = '{"question": "...", "answer": "... #### 18"}'
    hub_id = "openai/gsm8k"
    hub_config: ClassVar[str | None] = "main"

    def shot(self, row: Row) -> str:
        """Return the question and its worked answer, with the result in a box."""
        work, _, result = row["answer"].rpartition("####")
        worked = CALCULATION.sub("", work).strip()
        return f"{_boxed_prompt(row['question'])}\n\n{worked}\n\\boxed{{{result.strip()}}}"

    def question(self, row: Row, number: int) -> Question:
        truth = row["answer"].rpartition("####")[2].strip().replace(",", "")
        return Question(f"{self.name}-{number}", _boxed_prompt(row["question"]), float(truth))

    def grader(self, question: Question, mode: Mode) -> Grader:
        """Return the grader; in d1 mode a negative truth cannot be matched."""
        truth = question.truth if mode == "robust" or question.truth >= 0 else None
        return NumberGrader(truth, mode)


class SVAMP(GSM8K):
    """Short word problems with one number as the answer."""

    name = "svamp"
    row_format = '{"Body": "...", "Question": "...", "Equation": "( 12.0 + 7.0 )", "Answer": 19.0}'
    hub_id = "ChilleD/SVAMP"
    hub_config = None

    def shot(self, row: Row) -> str:
        """Return the question and its equation, with the result in a box."""
        problem = _boxed_prompt(f"{row['Body']} {row['Question']}")
        return f"{problem}\n\n{row['Equation']} = \\boxed{{{float(row['Answer']):g}}}"

    def question(self, row: Row, number: int) -> Question:
        return Question(
            f"svamp-{number}",
            _boxed_prompt(f"{row['Body']} {row['Question']}"),
            float(row["Answer"]),
        )


class SVAMPShort(SVAMP):
    """The same problems as they are, for the embedded model of word problems."""

    name = "svamp-short"
    version = "short-1"

    def shot(self, row: Row) -> str:
        return f"{self._text(row)}\n\n{row['Equation']} = {float(row['Answer']):g}"

    def question(self, row: Row, number: int) -> Question:
        return Question(f"svamp-{number}", self._text(row), float(row["Answer"]))

    def _text(self, row: Row) -> str:
        body = row["Body"].strip()
        return f"{body}{'' if body[-1:] in {*'.,?!', ''} else '.'} {row['Question']}".strip()


class MATH500(Dataset):
    """Competition problems with a LaTeX answer."""

    name = "math500"
    version = "boxed-1"
    row_format = '{"problem": "...", "answer": "..."}'
    hub_id = "HuggingFaceH4/MATH-500"

    def question(self, row: Row, number: int) -> Question:
        return Question(f"math500-{number}", _boxed_prompt(row["problem"]), row["answer"])

    def grader(self, question: Question, mode: Mode) -> Grader:
        return MathGrader(question.truth, mode)


class ARCChallenge(Dataset):
    """Multiple-choice science questions from school; the text of each choice is scored.

    Prompt and candidate join to lm-evaluation-harness's text, and are split where it splits them.
    """

    name = "arc-challenge"
    version = "lm-eval-2"
    row_format = (
        '{"question": "...", "choices": {"text": ["...", "..."], "label": ["A", "B"]}, '
        '"answerKey": "A"}'
    )
    hub_id = "allenai/ai2_arc"
    hub_config = "ARC-Challenge"
    likelihood_selector = "prompt-last-2"

    def shot(self, row: Row) -> str:
        """Return the question with the text of its right choice."""
        question = self.question(row, 0)
        return f"{question.prompt}{question.candidates[question.right]}"

    def question(self, row: Row, number: int) -> Question:
        labels, texts = (
            list(row["choices"]["label"]),
            tuple(f" {text}" for text in row["choices"]["text"]),
        )
        prompt = f"Question: {row['question']}\nAnswer:"
        return Question(
            str(row.get("id", number)),
            prompt,
            row["answerKey"],
            texts,
            labels.index(row["answerKey"]),
        )


class GPQA(Dataset):
    """Graduate-level questions with four choices, shuffled with the row's number as the seed; the
    letter is scored.

    Prompt and candidate join to lm-evaluation-harness's text but for the order of the choices, and
    are split where it splits them.
    """

    name = "gpqa"
    version = "letters-2"
    row_format = (
        '{"Question": "...", "Correct Answer": "...", "Incorrect Answer 1": "...", '
        '"Incorrect Answer 2": "...", "Incorrect Answer 3": "..."}'
    )
    hub_id = "Idavidrein/gpqa"
    hub_config = "gpqa_main"
    split = "train"
    likelihood_selector = "prompt-last-7+response-first-2"

    def question(self, row: Row, number: int) -> Question:
        texts = [row["Correct Answer"], *(row[f"Incorrect Answer {i}"] for i in (1, 2, 3))]
        order = Random(number).sample(range(4), 4)
        lines = [
            f"({letter}) {_without_titles(texts[index])}"
            for letter, index in zip("ABCD", order, strict=True)
        ]
        prompt = (
            f"What is the correct answer to this question:{row['Question']}\nChoices:\n"
            + "\n".join(lines)
            + "\nAnswer:"
        )
        return Question(
            f"gpqa-{number}",
            prompt,
            "ABCD"[order.index(0)],
            (" (A)", " (B)", " (C)", " (D)"),
            order.index(0),
        )


DATASETS: dict[str, Dataset] = {
    kind.name: kind()
    for kind in (
        Countdown,
        CountdownShort,
        CountdownAnswers,
        CountdownChoice,
        GSM8K,
        SVAMP,
        SVAMPShort,
        MATH500,
        ARCChallenge,
        GPQA,
    )
}


@dataclass(frozen=True, slots=True)
class Shots:
    """Worked examples before each question: the first `count` of a local file or, without one, of
    the training split on the hub.
    """

    count: int = 0
    path: Path | None = None


def load(
    name: str,
    path: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    revision: str | None = None,
    shots: Shots | None = None,
    chat: bool | None = None,
) -> Questions:
    """Return the questions of a data set: from the local file `path`, else from the hub if it is
    there, else drawn with `seed`.

    limit: the number of questions to keep, the first ones. revision: branch, tag or commit on the
    hub. Raises InputError for an unknown name or a bad file, ModelError if the hub cannot be read.
    """
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    dataset = DATASETS[name]
    if path is not None:
        rows, source = _file_rows(path, dataset)
    elif dataset.hub_id is not None:
        rows, source = _hub_rows(dataset, dataset.split, revision)
    else:
        rows, source = dataset.drawn(limit or 256, seed), f"drawn, seed {seed}"
    items = tuple(_questions(dataset, rows, source))[:limit]
    if not items:
        raise InputError(f"data set {name!r} from {source} holds no question", "data")
    if shots is not None and shots.count:
        examples, origin = _examples(dataset, shots, revision)
        items = tuple(replace(item, prompt=f"{examples}\n\n{item.prompt}") for item in items)
        source = f"{source}; {shots.count} shots of {origin}"
    return Questions(dataset, source, items, chat)


def _examples(dataset: Dataset, shots: Shots, revision: str | None) -> tuple[str, str]:
    """Return the worked examples as one text, and their source. Raises InputError for too few or
    unsuitable rows.
    """
    if type(dataset).shot is Dataset.shot:
        dataset.shot({})
    rows, origin = (
        _file_rows(shots.path, dataset, "--shots-file")
        if shots.path is not None
        else _hub_rows(dataset, "train", revision)
    )
    if len(rows) < shots.count:
        raise InputError(
            f"{origin} holds {len(rows)} examples, fewer than --shots {shots.count}", "shots"
        )
    try:
        return "\n\n".join(dataset.shot(row) for row in rows[: shots.count]), origin
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{origin} holds no worked example of {dataset.name!r}: {error!r}; a row is "
            f"{dataset.row_format}",
            "shots",
        ) from error


def _questions(dataset: Dataset, rows: Iterable[Row], source: str) -> Iterable[Question]:
    for number, row in enumerate(rows):
        try:
            yield replace(dataset.question(row, number), row=row)
        except UnsuitableRowError:
            continue
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"row {number + 1} of {source} is none of {dataset.name!r}: {error!r}; a row is "
                f"{dataset.row_format}",
                "data",
            ) from error


def _file_rows(path: Path, dataset: Dataset, option: str = "--data") -> tuple[list[Row], str]:
    """Return the rows of a local file, and its name with its digest. Raises InputError for a file
    that cannot be read or is not a JSON list or JSON lines; the error names the option.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = json.loads(text) if path.suffix == ".json" else _lines(text)
    except OSError as error:
        found = f"; the public ones are at {dataset.file_at}" if dataset.file_at else ""
        raise InputError(f"cannot read {option} {path}: {error.strerror}{found}", "data") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{option} {path} is not JSON: {error}; a row is {dataset.row_format}", "data"
        ) from error
    if not isinstance(rows, list):
        raise InputError(
            f"{option} {path} holds no list of questions; a row is {dataset.row_format}", "data"
        )
    return rows, f"{path.name} sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def _lines(text: str) -> list[Row]:
    """Return the rows of JSON lines. Raises ValueError, which names the line."""
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
    return rows


def _hub_rows(dataset: Dataset, split: str, revision: str | None) -> tuple[list[Row], str]:
    """Return the rows of a split, and its name with the commit that they are from. Raises
    ModelError if the hub cannot be read.
    """
    import datasets
    from huggingface_hub import HfApi

    try:
        commit = HfApi().dataset_info(str(dataset.hub_id), revision=revision).sha
        rows = datasets.load_dataset(
            dataset.hub_id, dataset.hub_config, split=split, revision=commit
        )
        return list(rows), " ".join(
            filter(None, (dataset.hub_id, dataset.hub_config, split, commit))
        )
    except Exception as error:
        hint = (
            " It is gated: accept its terms on its page, then log in with `hf auth login`."
            if dataset.name == "gpqa"
            else ""
        )
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"cannot read {dataset.hub_id} from the hub: {problem}.{hint} Or give --data FILE"
        ) from error


def _boxed_prompt(problem: str) -> str:
    return (
        f"Solve the problem step by step, and put the final answer into \\boxed{{}}.\n\n{problem}"
    )


def _without_titles(choice: str) -> str:
    """Return a choice as lm-evaluation-harness shows it."""
    return choice.strip().replace(" [title]", ". ").replace("  ", " ")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _worked(numbers: Sequence[int], signs: str) -> tuple[str, int]:
    """Return the steps and the expression of a signed sum as one text, and its value."""
    value, expression, steps = numbers[0], str(numbers[0]), []
    for sign, number in zip(signs, numbers[1:], strict=True):
        result = value + number if sign == "+" else value - number
        steps.append(f"{value}{sign}{number}={result}")
        value, expression = result, f"{expression}{sign}{number}"
    return f"{','.join(steps)}<answer>{expression}</answer>", value


def _is_held_out(numbers: Sequence[int], target: int) -> bool:
    """Return whether the problem was held out from the embedded model's training: one in 256 is,
    by digest.
    """
    key = f"{','.join(map(str, sorted(numbers)))}->{target}"
    return hashlib.sha256(key.encode()).hexdigest().startswith("00")
