"""What a rule tries for a threshold with a promise, and why it ends where it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dise_core.errors import InputError
from dise_core.scoring.calibration import Threshold
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import RULES, Promise, RankedLabels, RankTrial, Rule, fewest

STEP_OF_RISK = 0.005
"""How finely a refusal looks for a risk that can be kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What a rule tried, in its order, on one answer to each question."""

    rule: Rule
    promise: Promise
    ranks: RankedLabels
    trials: tuple[RankTrial, ...]

    @classmethod
    def by(cls, rule: Rule, ranks: RankedLabels, promise: Promise) -> Search:
        return cls(rule, promise, ranks, tuple(RULES[rule](ranks, promise)))

    @property
    def best(self) -> RankTrial | None:
        """The passing trial that keeps most; None if none passes."""
        passing = (trial for trial in self.trials if trial.passes)
        return max(passing, key=lambda trial: trial.num_kept, default=None)

    @property
    def threshold(self) -> Threshold:
        """The threshold of largest coverage. Raises InputError, with what was tried,
        where none keeps the promise.
        """
        best, total = self.best, self.ranks.num_labels
        if best is None:
            raise self._refusal()
        return Threshold(
            score=float(self.ranks.thresholds[best.rank - 1]),
            rule=self.rule,
            max_risk=self.promise.max_risk,
            confidence=self.promise.confidence,
            num_labels=total,
            coverage=best.num_kept / total,
            risk=best.num_wrong / best.num_kept,
            bound=best.bound if self.rule == "sgr" else best.p_value,
        )

    @property
    def reason(self) -> str:
        """Why the threshold is where it is; empty without one."""
        best = self.best
        if best is None:
            return ""
        evidence = (
            f"{best.num_wrong} of the {best.num_kept} surest are wrong, which shows that at most "
            f"{min(_up(best.bound), self.promise.max_risk):.1%} of such answers are"
        )
        more = [trial for trial in self.trials if trial.num_kept > best.num_kept]
        if not more:
            return f"{evidence}; no more could be tried"
        following = min(more, key=lambda trial: trial.num_kept)
        return (
            f"{evidence}; {following.num_wrong} of the {following.num_kept} surest, the next that "
            f"were tried, leave up to {_up(following.bound):.1%} (each in its part of the "
            f"{self.promise.delta:.1%} that may fail)"
        )

    def _refusal(self) -> InputError:
        promise, total, rule = self.promise, self.ranks.num_labels, self.rule
        second: Rule = "ltt" if rule == "sgr" else "sgr"
        beside = Search.by(second, self.ranks, promise).best
        instead = (
            f"{second} does not keep it either"
            if beside is None
            else f"{second} keeps it and answers {beside.num_kept / total:.1%} (--rule {second})"
        )
        return InputError(
            f"no threshold keeps the risk at {100 * promise.max_risk:g}% with "
            f"{100 * promise.confidence:g}% confidence by {rule}: {self._tried()}. {self._kept()}; "
            f"{instead}. Label more questions, or allow more risk",
            "max_risk",
        )

    def _tried(self) -> str:
        total, minimum = self.ranks.num_labels, fewest(self.promise.max_risk, self.promise.delta)
        if not self.trials:
            return f"it takes {minimum} answers or more without a wrong one, of {total} questions"
        nearest = min(self.trials, key=lambda trial: trial.bound)
        tried = ", ".join(str(trial.num_kept) for trial in self.trials)
        return (
            f"of {total} questions it tried the surest {tried}; {nearest.num_wrong} of "
            f"{nearest.num_kept} wrong came nearest, which leaves up to {_up(nearest.bound):.1%}"
        )

    def _kept(self) -> str:
        """Return the least risk that the rule keeps, in whole STEP_OF_RISK."""
        confidence, start = self.promise.confidence, int(self.promise.max_risk / STEP_OF_RISK) + 1
        for step in range(start, round(1 / STEP_OF_RISK)):
            risk = step * STEP_OF_RISK
            best = Search.by(self.rule, self.ranks, Promise(risk, confidence)).best
            if best is not None:
                share = best.num_kept / self.ranks.num_labels
                return f"At a risk of {risk:.1%} it answers {share:.1%}"
        return "At no risk does it answer any"


def search(rule: Rule, labels: Labels, promise: Promise) -> Search:
    """Return what the rule tries, on the first answer to each question."""
    return Search.by(rule, RankedLabels.of(labels.one_each()), promise)


def _up(share: float) -> float:
    """Return a share rounded up to a tenth of a percent, to err above a promise."""
    return math.ceil(share * 1000 - 1e-9) / 1000
