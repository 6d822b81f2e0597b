"""Our graders as lm-polygraph's generation metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from lm_polygraph.generation_metrics.generation_metric import GenerationMetric

from dise_core import Floats, InputError
from dise_core.records import Fields
from dise_eval.datasets.questions import ProblemSet
from dise_eval.graders import Mode


class Graded(GenerationMetric):  # type: ignore[misc]
    """Whether an answer is right: 1 if the data set's own grader says so, else 0."""

    def __init__(self, questions: ProblemSet, mode: Mode = "robust") -> None:
        """Raises InputError for a data set whose answers are ranked, not graded."""
        super().__init__(["greedy_texts", "input_texts"], "sequence")
        self._name = questions.grader(mode)
        self._questions, self._mode = questions, mode
        self._by_prompt = {question.prompt: question for question in questions.items}

    def __str__(self) -> str:
        return self._name

    def __call__(self, stats: Fields, target_texts: Sequence[str]) -> Floats:  # noqa: ARG002
        """Return verdicts, float64 [n]. Raises InputError for an unknown prompt."""
        answers = zip(stats["input_texts"], stats["greedy_texts"], strict=True)
        return np.array([self._verdict(prompt, text) for prompt, text in answers])

    def _verdict(self, prompt: str, text: str) -> float:
        if prompt not in self._by_prompt:
            raise InputError(f"{prompt!r:.80} is not the prompt of a question", "input_texts")
        question = self._by_prompt[prompt]
        return float(self._questions.graded(question, text, self._mode)["is_correct"])
