"""The kit of graders passes right ones, and names the promise that a wrong one breaks."""

from typing import Any

import pytest

from dise_eval import Grader, Verdict, check_grader
from dise_eval.graders import GRADERS


class Last(Grader):
    """Compares the last word."""

    version = "last-1"

    def __init__(self, truth: object, mode: str) -> None:
        self.truth = str(truth)

    def grade(self, response: str) -> Verdict:
        word = (response.split() or [""])[-1][:100]
        return Verdict(word == self.truth, word or None, "the last word")


class Raising(Last):
    def grade(self, response: str) -> Verdict:
        word = response.rsplit(maxsplit=1)[-1][:100]
        return Verdict(word == self.truth, word, "the last word")


class Long(Last):
    def grade(self, response: str) -> Verdict:
        return Verdict(super().grade(response).is_correct, response, "the last word")


class Remembering(Last):
    num_graded = 0

    def grade(self, response: str) -> Verdict:
        self.num_graded += 1
        is_right = super().grade(response).is_correct
        return Verdict(is_right, None, f"answer {self.num_graded}")


class Anything(Last):
    def grade(self, response: str) -> Verdict:
        return Verdict(True, None, "all answers are right")


class Nothing(Last):
    def grade(self, response: str) -> Verdict:
        return Verdict(False, None, "no answer is right")


class Bare(Last):
    def grade(self, response: str) -> Verdict:
        return super().grade(response).is_correct  # type: ignore[return-value]


class Truthy(Last):
    def grade(self, response: str) -> Verdict:
        count: Any = response.count(self.truth)
        return Verdict(count, None, "counted")


class Nameless(Last):
    version = ""


@pytest.mark.parametrize(
    ("name", "truth", "right", "wrong"),
    [
        ("number", 7, "so 7", "so 8"),
        ("math", "7", r"\boxed{7}", r"\boxed{8}"),
        ("countdown", [[3, 4], 7], "<answer>3+4</answer>", "<answer>3*4</answer>"),
        ("choice", "B", "it is B", "it is A"),
        ("text", "cat", "Cat.", "dog"),
    ],
)
def test_built_in_ones_conform(name: str, truth: object, right: str, wrong: str) -> None:
    check_grader(GRADERS[name], truth, right, wrong)


@pytest.mark.parametrize("name", ["number", "math", "countdown"])
def test_the_graders_of_the_mode_d1_conform(name: str) -> None:
    truth: object = [[3, 4], 7] if name == "countdown" else "7"
    right = r"\boxed{3+4}" if name == "countdown" else r"\boxed{7}"
    check_grader(GRADERS[name], truth, right, r"\boxed{8}", "d1")


def test_a_grader_of_ones_own_conforms() -> None:
    check_grader(Last, "cat", "a cat", "a dog")


@pytest.mark.parametrize(
    ("grader", "promise"),
    [
        (Raising, "must not raise for any text"),
        (Long, "must tell at most 1000 characters"),
        (Remembering, "must get the same verdict again"),
        (Anything, "'a dog' must be graded as wrong"),
        (Nothing, "'a cat' must be graded as right"),
        (Bare, "must return a Verdict"),
        (Truthy, "is_correct must be a bool"),
        (Nameless, "version must be a name"),
    ],
)
def test_a_wrong_one_is_told_the_broken_promise(grader: type[Last], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_grader(grader, "cat", "a cat", "a dog")
