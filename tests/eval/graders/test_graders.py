"""The graders: what each mode reads from an answer, and that no text can do harm."""

import pytest

from dise_core import InputError
from dise_eval.graders import GRADERS, CountdownGrader, MathGrader, NumberGrader
from dise_eval.graders.arithmetic import ExpressionError, value_of
from dise_eval.graders.extract import last_box
from dise_eval.graders.symbolic import are_equal
from tests.commands import Dise


@pytest.mark.parametrize(
    ("response", "d1", "robust"),
    [
        ("\\boxed{75+18-83}", True, True),
        ("\\boxed{75 + 18 - 83 = 10}", True, True),
        ("\\boxed{1} so \\boxed{75+18-83}", True, True),
        ("<answer>75+18-83</answer>", False, True),
        ("\\boxed{75 <answer>75+18-83</answer>", True, True),
        ("75+18-83", True, False),
        ("it is 75+18-83=10", True, False),
        ("\\boxed{75+18-82}", False, False),
        ("\\boxed{83-75-18}", False, False),
        ("\\boxed{75 \\times 18 \\div 83}", False, False),
        ("\\boxed{\\left(75+18\\right)-83}", False, True),
        ("\\boxed{$75+18-83$}", False, True),
        ("\\boxed{98**97**96}", False, False),
        ("\\boxed{__import__('os').system('x')}", False, False),
        ("\\boxed{" + "(" * 10_000 + "75+18-83}", False, False),
        ("\\boxed{75+18-(83}", False, False),
        ("\\boxed{75+18-83", False, False),
        ("", False, False),
    ],
)
def test_countdown(response: str, d1: bool, robust: bool) -> None:
    for mode, expected in (("d1", d1), ("robust", robust)):
        verdict = CountdownGrader([83, 18, 75], 10, mode).grade(response)  # type: ignore[arg-type]
        assert verdict.is_correct is expected, (mode, verdict)
        assert verdict.reason


@pytest.mark.parametrize(
    ("numbers", "target", "text", "robust"),
    [([2, 3], 8, "2**3", False), ([7, 2], 3, "7//2", False), ([1, 5], 1.5, "1.5", True)],
)
def test_d1_countdown_keeps_the_harness_traps(
    numbers: list[int], target: float, text: str, robust: bool
) -> None:
    for mode, expected in (("d1", True), ("robust", robust)):
        grader = CountdownGrader(numbers, target, mode)  # type: ignore[arg-type]
        assert grader.grade(f"\\boxed{{{text}}}").is_correct is expected


def test_what_was_read_and_why_is_told() -> None:
    grader = CountdownGrader([83, 18, 75], 10)
    verdict = grader.grade("\\boxed{75+18}")
    assert (verdict.extracted, verdict.reason) == ("75+18", "uses [18, 75] instead of [18, 75, 83]")
    assert grader.grade("\\boxed{83-75+18}").reason == "makes 26, the target is 10"


@pytest.mark.parametrize(
    ("response", "truth", "d1", "robust"),
    [
        ("\\boxed{18}", 18, True, True),
        ("\\boxed{18 dollars}", 18, True, True),
        ("\\boxed{43,500}", 43500, False, True),
        ("\\boxed{43,500}", 43, True, False),
        ("\\boxed{...} then \\boxed{5}", 5, True, True),
        ("\\boxed{1} and \\boxed{2}", 1, True, False),
        ("\\boxed{1} and \\boxed{2}", 2, False, True),
        ("<answer>about 3 or 4</answer>", 4, True, True),
        ("the answer is 7", 7, False, True),
        ("\\boxed{\\frac{1}{2}}", 1, True, False),
        ("\\boxed{\\frac{1}{2}}", 0.5, False, True),
        ("\\boxed{-3}", -3, False, True),
        ("no number", 1, False, False),
    ],
)
def test_numbers(response: str, truth: float, d1: bool, robust: bool) -> None:
    assert NumberGrader(truth, "d1").grade(response).is_correct is d1
    assert NumberGrader(truth, "robust").grade(response).is_correct is robust


@pytest.mark.parametrize(
    ("name", "response", "truth", "expected"),
    [
        ("number", "it is 1,018", "work #### 1,018", True),
        ("choice", "A is wrong, so the answer is (B).", "B", True),
        ("choice", "\\boxed{b}", "B", False),
        ("choice", "<answer>(C)</answer> or A", "C", True),
        ("text", "\\boxed{New  York.}", "new york", True),
        ("text", "York", "New York", False),
    ],
)
def test_graders_by_name(name: str, response: str, truth: object, expected: bool) -> None:
    verdict = GRADERS[name](truth, "robust").grade(response)
    assert verdict.is_correct is expected, verdict


@pytest.mark.parametrize(
    ("name", "truth", "told"),
    [
        ("number", "many", "must be a number, not 'many'"),
        ("countdown", [1, 2], r"must be \[\[numbers\], target\], not \[1, 2\]"),
        ("choice", "b", "must be the letter of a choice, not 'b'"),
        ("text", " ", "must be a text, not ' '"),
    ],
)
def test_a_truth_that_a_grader_cannot_read_is_refused(name: str, truth: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        GRADERS[name](truth, "robust")


def test_d1_has_no_grader_of_choices() -> None:
    with pytest.raises(InputError, match="d1 has no grader 'choice'"):
        GRADERS["choice"]("B", "d1")


SAME_TEXT = [
    *(("\\frac12", "\\frac{1}{2}"), ("\\dfrac{1}{2}", "\\frac{1}{2}"), ("1/2", "\\frac{1}{2}")),
    *(("0.5", "\\frac{1}{2}"), (".5", "\\frac{1}{2}"), ("x=5", "5"), ("5\\text{ cm}", "5")),
    *(("90^\\circ", "90"), ("\\$5", "5"), ("10\\%", "10"), ("\\sqrt3", "\\sqrt{3}"), ("1 0", "10")),
    ("\\left( 1, 2 \\right)", "(1,2)"),
]
SAME_VALUE = [
    *(("2\\sqrt{3}", "\\sqrt{12}"), ("x+1", "1+x"), ("\\frac{2}{4}", "0.5")),
    *(("(x+1)^2", "x^2+2x+1"), ("\\frac{\\pi}{2}", "0.5\\pi"), ("\\{2, 1\\}", "\\{1, 2\\}")),
]


@pytest.mark.parametrize(
    ("answer", "truth", "d1"),
    [*((*pair, True) for pair in SAME_TEXT), *((*pair, False) for pair in SAME_VALUE)],
)
def test_robust_sees_what_is_equal_as_mathematics_and_d1_the_same_text(
    answer: str, truth: str, d1: bool
) -> None:
    assert MathGrader(truth, "robust").grade(f"so \\boxed{{{answer}}}").is_correct
    assert MathGrader(truth, "d1").grade(f"so \\boxed{{{answer}}}").is_correct is d1


def test_what_is_not_equal_is_not() -> None:
    for mode in ("d1", "robust"):
        assert not MathGrader("5", mode).grade("\\boxed{6}").is_correct  # type: ignore[arg-type]
        assert not MathGrader("5", mode).grade("nothing").is_correct  # type: ignore[arg-type]
    assert MathGrader("5", "robust").grade("<answer>5</answer>").is_correct
    assert MathGrader("5", "d1").grade("see \\boxed 5$ there").is_correct


def test_a_comparison_that_takes_too_long_is_given_up() -> None:
    assert not are_equal("9^{9^{9^{9^{9}}}}", "8^{9^{9^{9^{9}}}}")
    assert are_equal("2", "1+1")
    assert not are_equal("1" * 1000, "1")


def test_a_root_of_nothing_is_compared_as_it_is() -> None:
    assert MathGrader("\\sqrt", "d1").grade("\\boxed{\\sqrt}").is_correct


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("-4/2", -2),
        ("7//2", 3),
        ("2**-1", 0.5),
        ("1.5*2", 3),
        ("7/3*3", 7),
    ],
)
def test_expressions_have_pythons_value(text: str, value: float) -> None:
    assert value_of(text, python=True) == value


@pytest.mark.parametrize(
    "text",
    [
        *("98**97**96", "2**99999", "2**4000*2**4000", "1e999", "9" * 1001, "1/0", "1//0", "0**-1"),
        *("(" * 10_000, "((1)", "", "True", "'a'", "x", "[1]"),
        *("1 if 1 else 2", "(lambda: 1)()", "__import__('os')"),
    ],
)
def test_all_else_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(text, python=True)


def test_boxes_may_nest_and_may_stay_open() -> None:
    assert last_box("\\boxed{1} \\boxed{\\frac{1}{2}} x") == "\\frac{1}{2}"
    assert last_box("\\fbox{3}") == "3"
    assert last_box("\\boxed{\\frac{1}{2}") is None


def test_the_help_of_grader_names_every_grader(dise: Dise) -> None:
    about = dise("eval", "uncertainty", "--help").out.partition("--grader")[2]
    assert f"{', '.join(GRADERS)}." in " ".join(about.split())
