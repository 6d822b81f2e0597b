"""Problems in words, answered by a number or LaTeX: GSM8K, SVAMP and MATH-500."""

from __future__ import annotations

import re
from dataclasses import replace

from dise_eval.datasets.dataset import DataRow, Dataset, Hub

CALCULATION = re.compile(r"<<[^>]*>>")


def _boxed(problem: str) -> str:
    return (
        f"Solve the problem step by step, and put the final answer into \\boxed{{}}.\n\n{problem}"
    )


def _gsm8k_shot(row: DataRow) -> str:
    work, _, result = row["answer"].rpartition("####")
    worked = CALCULATION.sub("", work).strip()
    return f"{_boxed(row['question'])}\n\n{worked}\n\\boxed{{{result.strip()}}}"


def _svamp_shot(row: DataRow) -> str:
    return f"{_svamp_boxed(row)}\n\n{row['Equation']} = \\boxed{{{float(row['Answer']):g}}}"


def _svamp_boxed(row: DataRow) -> str:
    return _boxed(f"{row['Body']} {row['Question']}")


def _svamp_plain(row: DataRow) -> str:
    body = row["Body"].strip()
    return f"{body}{'' if body[-1:] in {*'.,?!', ''} else '.'} {row['Question']}".strip()


GSM8K = Dataset(
    name="gsm8k",
    version="boxed-1",
    prompt=lambda row: _boxed(row["question"]),
    answer=lambda row: float(row["answer"].rpartition("####")[2].strip().replace(",", "")),
    grader="number",
    shot=_gsm8k_shot,
    row_format='{"question": "...", "answer": "... #### 18"}',
    hub=Hub("openai/gsm8k", "main"),
)

SVAMP = Dataset(
    name="svamp",
    version="boxed-1",
    prompt=_svamp_boxed,
    answer=lambda row: float(row["Answer"]),
    grader="number",
    shot=_svamp_shot,
    row_format='{"Body": "...", "Question": "...", "Equation": "( 12.0 + 7.0 )", "Answer": 19.0}',
    hub=Hub("ChilleD/SVAMP"),
)

SVAMP_SHORT = replace(
    SVAMP,
    name="svamp-short",
    version="short-1",
    prompt=_svamp_plain,
    shot=lambda row: f"{_svamp_plain(row)}\n\n{row['Equation']} = {float(row['Answer']):g}",
    id_prefix="svamp",
)

MATH500 = Dataset(
    name="math500",
    version="boxed-1",
    prompt=lambda row: _boxed(row["problem"]),
    answer="answer",
    grader="math",
    row_format='{"problem": "...", "answer": "..."}',
    hub=Hub("HuggingFaceH4/MATH-500"),
)
