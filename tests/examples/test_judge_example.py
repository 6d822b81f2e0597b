"""The grader of the judge example, on answers as LLaDA-8B writes them."""

import pytest
from judge.roc_auc import boxed, is_correct


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("so \\boxed{49 + 55 - 53}", True),
        ("\\boxed{1} then \\boxed{49+55-53 = 51}", True),
        ("\\boxed{55 - 53}", False),
        ("\\boxed{49 \\times 55 - 53}", False),
        ("\\boxed{(49 + 55) - 53", False),
        ("49+55-53", False),
        ("\\boxed{49**55**53}", False),
        ("\\boxed{49/(55-55)}", False),
    ],
)
def test_the_last_box_is_graded(response: str, expected: bool) -> None:
    assert is_correct(response, [49, 55, 53], 51) is expected


def test_braces_inside_the_box_are_balanced() -> None:
    assert boxed("\\boxed{\\frac{1}{2}} and more") == "\\frac{1}{2}"
    assert boxed("nothing") is None
