"""--selector auto finds the score that tells, and keeps the simplest where none does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dise_core import Calibration, InputError, Selector, TokenSequence
from dise_core.arrays import Mask
from dise_core.scoring.calibration import Holding
from dise_eval.calibration import choosing, making
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise
from tests.commands import Dise
from tests.guests import with_guests
from tests.jsonlines import written

SCORES = ("dise:full", "dise:last-10", "dise:response", "dise:digits")
AUTO = ("--selector", "auto")


class Digits(Selector):
    """Selects the response's digits, in texts whose token ids are characters."""

    def select(self, sequence: TokenSequence) -> Mask:
        places = sequence.response_positions
        return sequence.mask_of([at for at in places if chr(sequence.ids[at]).isdigit()])


CATALOG = with_guests(selectors={"digits": Digits})


@pytest.fixture(autouse=True)
def digits_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dise_eval.cli.calibrate.installed_catalog", lambda: CATALOG)


def planted(folder: Path, **more: Any) -> Path:
    """A journal of 200 labels: wrong answers are less sure of their digits, of nothing else."""
    random = np.random.default_rng(0)
    key = {"experiment": "sampled", "model": "m", "settings": {"scorers": SCORES}}
    lines: list[Any] = [key]
    for number in range(40):
        answers = []
        for _ in range(5):
            ids = np.array([ord(random.choice([*"0123abcdefghijklmnop"])) for _ in range(40)])
            text, is_right = TokenSequence(ids, 4), bool(random.random() < 0.6)
            is_digit = Digits().select(text)
            logprobs = -random.exponential(1 + 0.9 * (is_digit & (not is_right)))
            masks = {name: CATALOG.selector(name[5:]).select(text) for name in SCORES}
            scores = {
                name: {"value": float(logprobs[mask].mean()) if mask.any() else None}
                for name, mask in masks.items()
            }
            answers.append({"is_correct": is_right, "scores": scores} | more)
        lines.append({"id": str(number), "answers": answers})
    return written(folder / "journal.jsonl", *lines)


def test_the_selector_of_digits_is_found_and_named_as_if_the_user_had(
    dise: Dise, tmp_path: Path
) -> None:
    output, more = tmp_path / "c.json", ("--overwrite", "--skip-unscored", "--json")
    args = ("calibrate", planted(tmp_path), "--output", output, *more)
    made = json.loads(dise(*args, *AUTO).out)["calibration"]
    compared = made.pop("compared")
    assert (compared["simplest"], compared["chosen"]) == ("dise:last-10", "dise:digits")
    assert list(compared["aurocs"]) == [SCORES[1], SCORES[0], *SCORES[2:]]
    assert 0 < compared["low"] < compared["gain"] < compared["high"]
    loaded = Calibration.load(output)
    assert (loaded.selector, loaded.scorer) == ("digits", "dise")
    assert loaded.compared is not None
    assert loaded.compared.model_dump() == compared
    assert json.loads(dise(*args, "--score", "dise:digits").out)["calibration"] == made
    run = dise(*args[:-1], *AUTO, "--held-out", 0.25)
    assert (
        "dise:digits is chosen: on questions left out of the choice, choosing gains +0." in run.out
    )
    assert "held out, 50 labels of 10 questions: too few for an ECE or a ROC-AUC" in run.out
    other = dise(*args[:-1], *AUTO, "--score", "dise:full", "--score", "dise:response")
    assert (
        "dise:full is kept, as none differs from it beyond chance: on questions left out"
        in other.out
    )
    assert Calibration.load(output).selector == "full"


def noise(seed: int, size: int = 200, each: int = 1, count: int = 8) -> Labels:
    """Scores that tell nothing; `each` answers to a question have one label and its scores."""
    random = np.random.default_rng(seed)
    number = size // each
    scores, is_right = random.normal(size=(number, count)), random.random(number) < 0.5
    questions = np.repeat(np.arange(number), each)
    return Labels(scores[questions], is_right[questions], questions)


@pytest.mark.parametrize("each", [1, 5])
def test_on_noise_the_simplest_is_kept_in_19_of_20_seeds(each: int) -> None:
    found = [choosing.choose(noise(seed, each=each), "abcdefgh").chosen for seed in range(20)]
    assert found.count("a") >= 19


def share(scores: Any, labels: Labels, folds: Any) -> float:
    """The ROC-AUC over the pairs of answers within folds, pair by pair."""
    pairs = [
        (scores[i] > scores[j]) + (scores[i] == scores[j]) / 2
        for i in np.flatnonzero(labels.is_right)
        for j in np.flatnonzero(~labels.is_right)
        if any(fold[i] and fold[j] for fold in folds)
    ]
    return float(np.mean(pairs))


def test_the_gain_is_that_of_a_naive_nested_choice() -> None:
    labels, random = noise(3, size=90, each=3, count=3), np.random.default_rng(0)
    labels.scores[:, 1] += random.normal(size=90)
    labels.scores[:, 2] += labels.is_right * random.random(90)
    outer, choice = [*labels.folds()], labels.scores[:, 0].copy()
    for fold in outer:
        others = labels.of(~fold)
        shares = [share(column, others, [*others.folds()]) for column in others.scores.T]
        choice[fold] = labels.scores[fold, int(np.argmax(shares))]
    gain = share(choice, labels, outer) - share(labels.scores[:, 0], labels, outer)
    found = choosing.choose(labels, "abc")
    assert found.gain == pytest.approx(gain)
    assert found.low < gain < found.high


def test_a_threshold_is_chosen_on_questions_that_chose_no_score() -> None:
    """Else its promise would not hold: the other half's labels may say what they want."""
    labels, by = noise(0, size=400, count=2), dict[str, Any](scorer="dise")
    labels.scores[:, 1] += 2.5 * labels.is_right
    by |= {"model": "m", "fingerprint": None, "judge": None, "scorer_settings": {}}
    by |= {"holds_for": Holding(texts="given")}
    ways = {name: by | {"selector": name} for name in ("full", "response")}
    asked: Any = None, making.Promises(Promise(0.3, 0.9)), "x"
    first, second = labels.split(0.5)
    made, _ = making.make(labels, ways, *asked)
    assert made.compared == choosing.choose(first, [*ways])
    assert made.selector == "response"
    alone = Labels(second.scores[:, 1], second.is_right, second.questions)
    expected, _ = making.make(alone, {"response": ways["response"]}, *asked)
    assert (made.map, made.threshold) == (expected.map, expected.threshold)
    assert made.num_labels == 200


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--score", "dise:full"), "several scores, and there is only one, dise:full"),
        (("--decisions",), "--decisions takes no --selector"),
        (("--fields",), "--fields takes one --score"),
        (("--score", "dise:last-3"), "or let --selector auto choose"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    dise: Dise, tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    args = ("--output", tmp_path / "c.json", "--skip-unscored")
    run = dise("calibrate", planted(tmp_path), *args, *AUTO, *more)
    assert (run.code, told in run.err) == (2, True), run.err


def test_labels_whose_folds_are_of_one_kind_choose_nothing() -> None:
    labels = noise(0, size=50, each=10)
    alike = Labels(labels.scores, labels.questions < 2, labels.questions)
    with pytest.raises(InputError, match="No fold of the questions has right and wrong"):
        choosing.choose(alike, "abcdefgh")
