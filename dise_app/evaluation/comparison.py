"""What the differences between contenders show: verdicts that follow from their intervals, and the
sentences that state them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from dise_app.evaluation.words import family_of
from dise_app.evaluation.writing import number, signed
from dise_core.records import Fields

Verdict = Literal["higher", "lower", "not told apart"]

MIN_QUESTIONS = 20
"""With fewer questions a bootstrap interval is too narrow to conclude from."""


def references_of(passes: Mapping[str, float]) -> list[str]:
    """Return the contenders that the others are compared with, which no result decides: the
    baselines of most and of fewest passes, the first of several; the first contender if none is a
    baseline.

    passes: of each contender.
    """
    baselines = [name for name in passes if family_of(name) == "baselines"] or list(passes)[:1]
    chosen = (pick(baselines, key=lambda name: round(passes[name])) for pick in (max, min))
    return list(dict.fromkeys(chosen))


def verdict(difference: Fields) -> Verdict | None:
    """Return what an estimate of a difference shows; None if it is undefined, or rests on too few
    questions.
    """
    low, high = difference["low"], difference["high"]
    if low is None or high is None or difference["num_questions"] < MIN_QUESTIONS:
        return None
    return "higher" if low > 0 else "lower" if high < 0 else "not told apart"


def conclusion(figure: str, beside: str, differences: Mapping[str, Fields], digits: int = 3) -> str:
    """Return the paragraph that concludes from the differences of contenders to one other.

    figure: what is compared, "ROC-AUC"; beside: the other, with what the reader should know of it.
    digits: after the point; with fewer than 3, differences are shares, told in points.
    """
    found: dict[Verdict, list[str]] = {"higher": [], "lower": [], "not told apart": []}
    for name, each in differences.items():
        if shown := verdict(each):
            found[shown].append(f"`{name}` ({difference_in_words(each, digits)})")
    if not any(found.values()):
        return (
            f"**Nothing is concluded on {figure}**: it takes {MIN_QUESTIONS} questions, with both "
            "right and wrong answers among them, and two contenders."
        )
    told = [f"{kind}: {', '.join(names)}" for kind, names in found.items() if names]
    return f"**{figure} beside {beside}**: {'; '.join(told)}.{_caution(found)}"


def beside_chance(auroc: Fields) -> Fields:
    """Return the estimate of an ROC-AUC as a difference from chance, 0.5."""
    ends = {end: auroc[end] for end in ("value", "low", "high")}
    return {**auroc, **{end: None if at is None else at - 0.5 for end, at in ends.items()}}


def difference_in_words(each: Fields, digits: int = 3) -> str:
    """Return a difference with its interval, "+0.012 [-0.004, +0.030]"; with fewer than 3 digits in
    points, "+1.2 [-0.4, +3.0] points".
    """
    scale, unit = (1, "") if digits >= 3 else (100, " points")
    if each["value"] is None:
        return "-"
    value, *ends = (
        signed(None if each[end] is None else scale * each[end], digits)
        for end in ("value", "low", "high")
    )
    return f"{value} [{', '.join(ends)}]{unit}"


def disagreements(figure: str, first: Mapping[str, Fields], other: Mapping[str, Fields]) -> str:
    """Return the sentence on contenders for which another figure shows something else than the
    first; "" if there are none. first, other: the differences by contender.
    """
    told = [
        f"`{name}` is {shown} ({difference_in_words(other[name])})"
        for name in other
        if (shown := verdict(other[name])) and shown != verdict(first[name])
    ]
    return f"By {figure} instead, {', '.join(told)}." if told else ""


def about_differences(num_comparisons: int) -> str:
    """Return the paragraph on how differences are estimated."""
    chance = (
        f" Of {num_comparisons} intervals at 95 %, about {num_comparisons / 20:.1f} exclude 0 by "
        "chance where nothing differs."
        if num_comparisons > 1
        else ""
    )
    return (
        "Differences are paired: both contenders are computed on the same 1,000 resamples of the "
        "questions, each kept with all its answers; in brackets 95 % intervals, not adjusted for "
        f"their number.{chance}"
    )


def table_of(
    differences: Mapping[str, Mapping[str, Fields]], names: Sequence[str]
) -> Iterable[tuple[str, ...]]:
    """Return a row for each contender: its differences in the figures with these names, and what
    the first of them shows.
    """
    for label, each in differences.items():
        shown = verdict(each[names[0]]) or "-"
        yield label, *(difference_in_words(each[name]) for name in names), shown


def _caution(found: Mapping[Verdict, Sequence[str]]) -> str:
    if not found["not told apart"]:
        return ""
    return (
        " Not told apart means that the interval contains 0, not that the two are equal: its ends "
        "say how far apart they may be."
    )


def percentage(share: Fields) -> str:
    """Return a share with its interval, "72.4 % [67.2, 77.5]"."""
    value, low, high = (
        number(None if share[end] is None else 100 * share[end], 1)
        for end in ("value", "low", "high")
    )
    return f"{value} % [{low}, {high}]"
