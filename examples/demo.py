"""Solve Countdown problems with the embedded model: how sure it is of each answer, what a threshold
on that score would have caught, and what revising the doubted tokens mends.

Every problem is held out: the model was not trained on it. Solved or failed is what the model did.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from embedded_models.countdown.problems import Problem, held_out_problems, is_correct
from rich.console import Console

from dise_app import show_answer, show_legend
from dise_core import LLM, RequestOutput, SamplingParams

NUM_PROBLEMS, NUM_SURE, NUM_UNSURE = 40, 3, 7
"""Problems that are asked, and of the answers the surest and the least sure, which are shown."""

NUM_OTHERS = 60
"""Problems that the threshold is chosen on, none of them among the former."""

NUM_MENDED = 3
"""Answers that are shown before and after revision."""

MOST_WRONG = 0.05
"""The share of the answers above the threshold that may be wrong."""

PLAIN = SamplingParams(
    max_tokens=48, block_length=16, tokens_per_step=4, selector="response-text", seed=0
)
REVISED = PLAIN.model_copy(update={"reviser": "remask"})


def main() -> None:
    """Print the answers, the surest first, then what a threshold and a reviser make of them."""
    console, llm = Console(highlight=False), LLM("countdown")
    console.print(
        "A score is the mean log-probability of writing the answer's tokens again, once it is "
        "finished: 0 is certain, and the lower it is, the less sure is the model.\n"
    )
    drawn = held_out_problems(Random(2026), NUM_PROBLEMS + NUM_OTHERS)
    problems, others = drawn[:NUM_PROBLEMS], drawn[NUM_PROBLEMS:]
    # One by one, so that the time of each is its own and not the batch's.
    answers = [llm.generate(problem.prompt, PLAIN)[0] for problem in problems]
    show(console, answers, problems)
    on_others = llm.generate([problem.prompt for problem in others], PLAIN)
    tell_threshold(console, answers, problems, threshold_of(on_others, others))
    revised = llm.generate([problem.prompt for problem in problems], REVISED)
    tell_revision(console, answers, revised, problems)


def show(console: Console, answers: list[RequestOutput], problems: Sequence[Problem]) -> None:
    """Print the surest and the least sure answers, with their scores, their tokens' colours, and
    whether each is right.
    """
    pairs = zip(answers, problems, strict=True)
    surest_first = sorted(pairs, key=lambda pair: -score_of(pair[0]))
    for number, (answer, problem) in enumerate(surest_first):
        if NUM_SURE <= number < NUM_PROBLEMS - NUM_UNSURE:
            continue
        if number == NUM_PROBLEMS - NUM_UNSURE:
            console.print(
                f"[dim]... {number - NUM_SURE} answers between, then the least sure[/dim]"
            )
        verdict = "[green]solved[/green]" if is_right(answer, problem) else "[red]failed[/red]"
        show_answer(console, answer, verdict=f"  {verdict}")
    show_legend(console, answers)


def threshold_of(answers: list[RequestOutput], problems: Sequence[Problem]) -> float:
    """Return the lowest score above which at most MOST_WRONG of the answers are wrong."""
    pairs = zip(answers, problems, strict=True)
    ranked = sorted(((score_of(a), is_right(a, p)) for a, p in pairs), reverse=True)
    chosen, num_wrong = ranked[0][0], 0
    for number, (score, right) in enumerate(ranked, start=1):
        num_wrong += not right
        if num_wrong <= MOST_WRONG * number:
            chosen = score
    return chosen


def tell_threshold(
    console: Console, answers: list[RequestOutput], problems: Sequence[Problem], least: float
) -> None:
    """Print what answering only above the threshold would have kept back."""
    pairs = list(zip(answers, problems, strict=True))
    right = [score_of(answer) >= least for answer, problem in pairs if is_right(answer, problem)]
    wrong = [score_of(answer) < least for answer, problem in pairs if not is_right(answer, problem)]
    console.print(
        f"\n[bold]{len(right)} of {len(pairs)} solved.[/bold] Answers below {least:.4f}, chosen on "
        f"{NUM_OTHERS} other problems so that {1 - MOST_WRONG:.0%} of those above are right: "
        f"[bold]{sum(wrong)} of the {len(wrong)} wrong answers are caught[/bold], and "
        f"{len(right) - sum(right)} of the {len(right)} right ones held back with them."
    )


def tell_revision(
    console: Console,
    before: list[RequestOutput],
    after: list[RequestOutput],
    problems: Sequence[Problem],
) -> None:
    """Print what writing the doubted tokens again has changed, and what it cost."""
    was, now = (
        [is_right(answer, problem) for answer, problem in zip(answers, problems, strict=True)]
        for answers in (before, after)
    )
    console.print(
        f"[bold]Revised[/bold] (--reviser remask), {sum(now)} of {len(now)} are solved, with "
        f"{passes(before):.1f} forward passes an answer before and {passes(after):.1f} after. "
        "Mended, for example:"
    )
    verdicts = zip(before, after, was, now, strict=True)
    mended = [(old, new) for old, new, was_right, is_now in verdicts if is_now and not was_right]
    for old, new in mended[:NUM_MENDED]:
        console.print(f"  {old.prompt}: {old.outputs[0].text}", markup=False)
        console.print(f"  {'became':>{len(old.prompt or '')}}  {new.outputs[0].text}", markup=False)


def passes(answers: list[RequestOutput]) -> float:
    """Return the mean number of forward passes."""
    return sum(answer.usage.nfe for answer in answers) / len(answers)


def score_of(answer: RequestOutput) -> float:
    """Return the score of the only output."""
    return answer.outputs[0].score.value


def is_right(answer: RequestOutput, problem: Problem) -> bool:
    """Return whether the answer solves the problem."""
    return is_correct(answer.outputs[0].text, problem)


if __name__ == "__main__":
    main()
