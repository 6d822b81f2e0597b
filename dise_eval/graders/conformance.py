"""The conformance check of graders."""

from dise_core.testing.promises import expect
from dise_eval.graders import Grader, GraderMaker, Mode, Verdict

LONG = 100_000

HOSTILE = (
    "", " \n\t", "\0", "\ud800", "\u202e\u0663\u0301\u216b", "nan", "1e999", "1/0",
    "9**9**9**9", "__import__('os')", "</answer>7<answer>", "\\boxed{", "7" * 400,
    "7" * LONG, "(" * LONG, "\\boxed{" * LONG, "<answer>" * LONG,
    "{}" * LONG, "7 " * LONG,
)  # fmt: skip
"""Texts over which a careless grader may stumble."""


def check_grader(
    grader: GraderMaker, truth: object, right: str, wrong: str, mode: Mode = "robust"
) -> None:
    """Check that graders of the truth find one answer right and the other wrong; that to
    any text, empty, hostile or huge, they return a Verdict, the same whatever was graded
    before; and that their version is a name.
    """
    first, second = grader(truth, mode), grader(truth, mode)
    answers = (*HOSTILE, right, wrong)
    verdicts = [_graded(first, answer) for answer in answers]
    expect(verdicts[-2].is_correct, f"{right!r:.80} must be graded as right")
    expect(not verdicts[-1].is_correct, f"{wrong!r:.80} must be graded as wrong")
    for answer, verdict in reversed([*zip(answers, verdicts, strict=True)]):
        again = second.grade(answer)
        promise = f"{answer!r:.40} must get the same verdict again: {verdict}, {again}"
        expect(again == verdict, promise)
    version = getattr(first, "version", None)
    is_name = isinstance(version, str) and version != ""
    expect(is_name, f"version must be a name, not {version!r}")


def _graded(grader: Grader, answer: str) -> Verdict:
    call = f"grade({answer!r:.40})"
    try:
        verdict = grader.grade(answer)
    except Exception as error:
        raise AssertionError(f"{call} must not raise for any text: {error!r}") from error
    is_verdict = isinstance(verdict, Verdict)
    expect(is_verdict, f"{call} must return a Verdict, not {verdict!r:.80}")
    is_bool = isinstance(verdict.is_correct, bool)
    expect(is_bool, f"{call}: is_correct must be a bool, not {verdict.is_correct!r:.80}")
    texts = [verdict.extracted or "", verdict.reason]
    is_short = all(isinstance(text, str) and len(text) <= 1000 for text in texts)
    expect(is_short, f"{call} must tell at most 1000 characters, not {texts!r:.80}")
    return verdict
