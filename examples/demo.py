"""Solve Countdown problems with the embedded model, and show how sure it is of each answer.

Every problem is held out: the model was not trained on it. Solved or failed is what the model did.
"""

from __future__ import annotations

from random import Random

from countdown_model.problems import held_out_problems, is_correct
from rich.console import Console

from dise_app.cli.render import legend, show_answer
from dise_core import LLM, SamplingParams

NUM_PROBLEMS = 10


def main() -> None:
    """Print the answers, the surest first, each with its score, its tokens' colours, and whether it
    is right.
    """
    console = Console(highlight=False)
    problems = held_out_problems(Random(2026), NUM_PROBLEMS)
    params = SamplingParams(
        max_tokens=48, block_length=16, tokens_per_step=2, selector="response-text", seed=0
    )
    answers = LLM("countdown").generate([problem.prompt for problem in problems], params)
    surest_first = sorted(
        zip(answers, problems, strict=True), key=lambda pair: -pair[0].outputs[0].score.value
    )
    num_solved = 0
    for answer, problem in surest_first:
        is_solved = is_correct(answer.outputs[0].text, problem)
        num_solved += is_solved
        show_answer(
            console,
            answer,
            verdict="  [green]solved[/green]" if is_solved else "  [red]failed[/red]",
        )
    console.print(legend())
    console.print(f"{num_solved} of {NUM_PROBLEMS} solved, the surest answer first")


if __name__ == "__main__":
    main()
