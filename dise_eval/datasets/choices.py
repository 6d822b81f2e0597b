"""Multiple choice as lm-evaluation-harness asks it: prompt and candidate join to its
text, and are split where it splits them.
"""

from __future__ import annotations

from random import Random

from dise_eval.datasets.dataset import NUMBER, DataRow, Dataset, Hub

LETTERS = "ABCD"


def _arc_prompt(row: DataRow) -> str:
    return f"Question: {row['question']}\nAnswer:"


def _arc_choices(row: DataRow) -> tuple[list[str], int]:
    texts = [f" {text}" for text in row["choices"]["text"]]
    return texts, list(row["choices"]["label"]).index(row["answerKey"])


def _arc_shot(row: DataRow) -> str:
    texts, answer = _arc_choices(row)
    return f"{_arc_prompt(row)}{texts[answer]}"


def _gpqa_order(row: DataRow) -> list[int]:
    """Return the choice of each letter, 0 for the right one, drawn by row number."""
    return Random(row[NUMBER]).sample(range(4), 4)


def _gpqa_prompt(row: DataRow) -> str:
    texts = [row["Correct Answer"], *(row[f"Incorrect Answer {place}"] for place in (1, 2, 3))]
    lines = [
        f"({letter}) {_without_titles(texts[place])}"
        for letter, place in zip(LETTERS, _gpqa_order(row), strict=True)
    ]
    choices = "\n".join(lines)
    return (
        f"What is the correct answer to this question:{row['Question']}\n"
        f"Choices:\n{choices}\nAnswer:"
    )


def _without_titles(choice: str) -> str:
    """Return a choice as lm-evaluation-harness shows it."""
    return choice.strip().replace(" [title]", ". ").replace("  ", " ")


ARC_CHALLENGE = Dataset(
    name="arc-challenge",
    version="lm-eval-2",
    prompt=_arc_prompt,
    answer="answerKey",
    choices=_arc_choices,
    shot=_arc_shot,
    row_format='{"question": "...", "choices": {"text": ["...", "..."], "label": ["A", "B"]}, '
    '"answerKey": "A"}',
    hub=Hub("allenai/ai2_arc", "ARC-Challenge"),
    id_field="id",
    likelihood_selector="prompt-last-2",
)

GPQA = Dataset(
    name="gpqa",
    version="letters-2",
    prompt=_gpqa_prompt,
    answer=lambda row: LETTERS[_gpqa_order(row).index(0)],
    choices=lambda row: ([f" ({letter})" for letter in LETTERS], _gpqa_order(row).index(0)),
    row_format='{"Question": "...", "Correct Answer": "...", "Incorrect Answer 1": "...", '
    '"Incorrect Answer 2": "...", "Incorrect Answer 3": "..."}',
    hub=Hub("Idavidrein/gpqa", "gpqa_main", "train", is_gated=True),
    likelihood_selector="prompt-last-7+first-2",
)
"""Four choices, shuffled with the row's number as the seed; the letter is scored."""
