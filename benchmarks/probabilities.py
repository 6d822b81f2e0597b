"""Put the probabilities that an embedded model's answers are told beside the share that is right,
by the way in which the answers come about; a way that nothing was fitted on is told none.

python benchmarks/probabilities.py [--problems 120] [--ways written given]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from command import Parser, head, row

from dise_core import LLM, RequestOutput, SamplingParams, ScoringParams
from dise_eval.datasets.questions import ProblemSet, load

Answers = Sequence[RequestOutput]
SEED = 7
PARAMS = SamplingParams(max_tokens=48, block_length=16)
SCHEMA = {"type": "integer", "minimum": 0, "maximum": 999}
"""JSON that the Countdown models can spell."""
EXPRESSION = r"[0-9+*/=,-]{1,30}<answer>[0-9+*/-]{1,12}</answer>"


@dataclass(frozen=True)
class Setup:
    """The models and the problems, each with an answer that was written to it before."""

    llm: LLM
    blocks: LLM
    questions: ProblemSet
    texts: Sequence[str]

    @property
    def prompts(self) -> Sequence[str]:
        return [question.prompt for question in self.questions.items]

    def written(self, **settings: object) -> Answers:
        """Return answers that are written with these settings."""
        return self.llm.generate(list(self.prompts), PARAMS.model_copy(update=settings))

    def constrained(self, constraint: str, **settings: object) -> Answers:
        return self.written(constraint=constraint, constraint_settings=settings)

    def scored(self, prompts: Sequence[str], **settings: object) -> Answers:
        """Return the scores of the given texts."""
        return self.llm.score(list(prompts), list(self.texts), ScoringParams(**settings))

    def chosen(self) -> Answers:
        """Return answers of which each keeps to its own problem's two choices."""
        answers = list[RequestOutput]()
        for prompt, text in zip(self.prompts, self.texts, strict=True):
            settings = {"choices": [text, text.replace("<answer>", "<answer>1+")]}
            changes = {"constraint": "choice", "constraint_settings": settings}
            answers += self.llm.generate(prompt, PARAMS.model_copy(update=changes))
        return answers


def gaps(setup: Setup) -> Answers:
    """Return what fills the gap that each text has in its answer."""
    heads = [text.partition("<answer>")[0] + "<answer>" for text in setup.texts]
    prefixes = [prompt + head for prompt, head in zip(setup.prompts, heads, strict=True)]
    params = SamplingParams(max_tokens=8)
    return setup.llm.fill(prefixes, ["</answer>"] * len(prefixes), params)


WAYS: dict[str, Callable[[Setup], Answers]] = {
    "written": lambda setup: setup.written(),
    "given": lambda setup: setup.scored(setup.prompts),
    "no prompt": lambda setup: setup.scored([""] * len(setup.texts)),
    "gap": gaps,
    "schema": lambda setup: setup.constrained("json-schema", schema=SCHEMA),
    "regex": lambda setup: setup.constrained("regex", regex=EXPRESSION),
    "choice": Setup.chosen,
    "reviser": lambda setup: setup.written(reviser="remask"),
    "other selector": lambda setup: setup.written(selector="response-text"),
    "temperature 3": lambda setup: setup.written(temperature=3.0, seed=0),
    "best of 8": lambda setup: setup.written(temperature=0.7, seed=0, best_of=8),
    "block model": lambda setup: setup.blocks.generate(
        list(setup.prompts), SamplingParams(max_tokens=48)
    ),
}


def show(name: str, setup: Setup) -> None:
    """Print a way's row: how many answers are told a probability, its mean, and how many of these
    are right.
    """
    outputs = [answer.outputs[0] for answer in WAYS[name](setup)]
    told = [
        (output.probability, setup.questions.graded(item, output.text, "robust")["is_correct"])
        for item, output in zip(setup.questions.items, outputs, strict=True)
        if output.probability is not None
    ]
    if not told:
        row(name, str(len(outputs)), "none", "", "")
        return
    probability, right = np.array(told, np.float64).mean(axis=0)
    cells = f"{probability:.3f}", f"{right:.3f}", f"{probability - right:+.3f}"
    row(name, str(len(told)), *cells)


def main() -> None:
    """Print the table."""
    parser = Parser(__doc__)
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    args = parser.options(problems=2)
    llm, questions = LLM("countdown"), load("countdown-short", None, args.problems, SEED)
    written = llm.generate([question.prompt for question in questions.items], PARAMS)
    texts = [answer.outputs[0].text or "0" for answer in written]
    setup = Setup(llm, LLM("countdown-blocks"), questions, texts)
    head("way", "answers", "told", "right", "difference")
    for name in args.ways:
        show(name, setup)


if __name__ == "__main__":
    main()
