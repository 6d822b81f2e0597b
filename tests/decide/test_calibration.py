"""Calibrated decisions: what is fitted, what is promised, and what is refused."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from pydantic import ValidationError
from scipy import special

from dise import LLM, AsyncLLM
from dise_app.server.app import create_app
from dise_app.server.limits import Limits
from dise_app.server.service import Service
from dise_core import InputError
from dise_core.scoring.calibration import Figures, Isotonic, Platt
from dise_decide import (
    ChoiceQuestion,
    DecisionCalibration,
    DecisionParams,
    Diagnostics,
    PredicateQuestion,
    Question,
    ScoreQuestion,
)
from dise_decide import calibration as maps
from dise_decide.calibration import nameless
from dise_decide.outputs import Finding
from dise_eval.calibration import decisions as fitting
from dise_eval.calibration.decided import DecidedLine, labelled
from dise_eval.calibration.decided import labels_of as labels_of_lines
from dise_eval.calibration.fitting import Labels
from dise_eval.calibration.guarantee import Promise
from dise_eval.calibration.making import Promises
from dise_eval.calibration.searching import search
from tests.app.serving import serving
from tests.calibrations import FIGURES
from tests.commands import Dise
from tests.jsonlines import records_of, written

THREE = ChoiceQuestion(instructions="", choices=["a", "b", "c"])
LEVELS = ScoreQuestion(instructions="", levels=["a", "b", "c"])
YES_NO = PredicateQuestion(instructions="")

softmax = partial(special.softmax, axis=-1)


def drawn(random: np.random.Generator, count: int, size: int, spread: float = 4.0) -> Any:
    """Answers that are twice as sure as they should be; and their logits."""
    logits = random.normal(scale=spread, size=(count, size))
    return labels_of(random, softmax(logits), softmax(logits / 2)), logits


def labels_of(random: np.random.Generator, shares: np.ndarray, truths: np.ndarray) -> Labels:
    """Answers with these shares, and right ones drawn with other probabilities."""
    right = (truths.cumsum(axis=1) < random.random((len(truths), 1))).sum(axis=1)
    return Labels(shares, np.eye(shares.shape[1], dtype=bool)[right], np.arange(len(shares)))


def fitted(labels: Labels, question: Question, **promises: Any) -> Any:
    questions = [question] * len(labels)
    return fitting.fitted(labels, questions, 200, Promises(**promises))


def test_a_temperature_is_found_again() -> None:
    labels, _ = drawn(np.random.default_rng(0), 4000, 3)
    fit, events = fitted(labels, THREE)
    assert fit.map.temperature == pytest.approx(2, rel=0.1)
    assert fit.before.ece > 0.1
    assert fit.after.ece < 0.03
    assert len(events) == fit.num_labels == fit.num_inputs == 4000


@pytest.mark.parametrize(("question", "size"), [(YES_NO, 2), (LEVELS, 3)])
@pytest.mark.parametrize("count", [400, 2000])
def test_tails_calibrate_predicates_and_scores(question: Question, size: int, count: int) -> None:
    labels, _ = drawn(np.random.default_rng(1), count, size)
    fit, _ = fitted(labels, question)
    assert isinstance(fit.map, maps.Tails)
    assert fit.after.ece < fit.before.ece / 2
    shares, confidences = maps.mapped(fit.map, labels.scores)
    assert shares.sum(axis=1) == pytest.approx(np.ones(count))
    assert shares.min() >= 0
    assert (shares.max(axis=1) == confidences).all()


def test_what_is_calibrated_already_stays_as_it_is() -> None:
    random = np.random.default_rng(2)
    shares = softmax(random.normal(scale=2, size=(900, 3)))
    fit, _ = fitted(labels_of(random, shares, shares), THREE)
    assert fit.map is None or fit.map.temperature == pytest.approx(1, abs=0.15)
    assert fit.after.ece < 0.05


def test_the_promised_risk_is_broken_in_at_most_5_of_100_resamplings() -> None:
    """The risk at or above a threshold is that of 20,000 answers, exact in their labels."""
    random, num_broken, num_made = np.random.default_rng(3), 0, 0
    _, pool = drawn(random, 20_000, 3, 8)
    risk = 1 - softmax(pool / 2).max(axis=1)
    for _ in range(500):
        mine, kept = drawn(random, 300, 3, 8)[0].split(0.5)
        map_ = fitting.temperature(mine)
        with suppress(InputError):
            found = search("sgr", fitting.likeliest(map_, kept), Promise(0.1, 0.95)).threshold
            above = softmax(pool / map_.temperature).max(axis=1) >= found.score
            num_broken += bool(above.any()) and float(risk[above].mean()) > 0.1
            num_made += 1
    assert num_made > 100, "what answers nothing promises nothing"
    assert num_broken <= 25


@pytest.mark.parametrize(("coverage", "count"), [(0.9, 9), (0.8, 50), (0.95, 40)])
def test_answer_sets_cover_what_they_promise_on_average(coverage: float, count: int) -> None:
    """Over 1,000 draws of labels; the mean's standard error is below 0.004, so that three of them
    are allowed on either side: the coverage is at most 1 / (n + 1) above the promise.
    """
    random, found = np.random.default_rng(4), list[float]()
    _, pool = drawn(random, 2000, 3)
    for _ in range(1000):
        sets = fitting.answer_sets(drawn(random, count, 3)[0], None, coverage)
        is_member = softmax(pool) >= sets.least
        found.append(float((softmax(pool / 2) * is_member).sum(axis=1).mean()))
    assert coverage - 0.012 <= np.mean(found) <= coverage + 1 / (count + 1) + 0.012


def test_too_few_labels_for_a_coverage_are_refused_by_number() -> None:
    labels, _ = drawn(np.random.default_rng(5), 98, 3)
    with pytest.raises(InputError, match=r"of 0\.99 needs labels of 99 inputs .* not of 98"):
        fitting.answer_sets(labels, None, 0.99)


@pytest.mark.parametrize("promises", [{"risk": Promise(0.3, 0.9)}, {"coverage": 0.9}])
def test_a_promise_takes_one_question_of_each_input_and_other_inputs_than_the_map(
    promises: dict[str, Any],
) -> None:
    labels, _ = drawn(np.random.default_rng(6), 1200, 3)
    labels = Labels(labels.scores, labels.is_right, labels.questions // 3)
    fit, _ = fitted(labels, THREE, rule="ltt", **promises)
    assert (fit.num_inputs, fit.num_labels) == (200, 600)
    kept = [promise.num_labels for promise in (fit.threshold, fit.sets) if promise is not None]
    assert kept == [200]


def fit_of(question: Question | None, **more: Any) -> maps.QuestionFit:
    figures = Figures.model_validate(FIGURES)
    fields = {"map": None, "num_labels": 9, "num_inputs": 9, "before": figures, "after": figures}
    fields |= {"type": "choice" if question is None else question.type, "question": question}
    return maps.QuestionFit.model_validate({**fields, **more}, strict=False)


def file_of(model: str = "countdown", **more: Any) -> DecisionCalibration:
    fields = {"names": {}, "types": {}, "fingerprint": None, "source": "x", "chat": True}
    fields |= {"model": model, "params": DecisionParams(layout="cloze")}
    return DecisionCalibration(**(fields | more))


PROBLEM = "83,18,75 -> 10"
SIGN = ChoiceQuestion(name="sign", instructions="18", choices=["+", "-", "*"])
LEVEL = ScoreQuestion(instructions="7", levels=["1", "2", "3"])


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("countdown")


THRESHOLD = {"score": 0.9, "rule": "sgr", "max_risk": 0.1, "confidence": 0.95, "num_labels": 99,
             "coverage": 0.5, "risk": 0.05, "bound": 0.1}  # fmt: skip


def test_answers_are_those_of_the_map(llm: LLM) -> None:
    sets = {"coverage": 0.9, "num_labels": 99, "least": 0.25}
    tails = [Platt(slope=0.5, intercept=b, lowest_score=-50, highest_score=50) for b in (0.2, -0.2)]
    top = Isotonic(scores=(0.0, 1.0), probabilities=(0.0, 0.5))
    hot = maps.Temperature(temperature=3.0, top=top)
    nameless = SIGN.model_copy(update={"name": None})
    sign = fit_of(nameless, map=hot, threshold=THRESHOLD)
    level = fit_of(
        None, type="score", map=maps.Tails(method="platt", tails=tuple(tails)), sets=sets
    )
    made = file_of(names={"sign": sign}, types={"score": level})
    raw = llm.decide(PROBLEM, [SIGN, LEVEL], DecisionParams(layout="cloze"))
    found = llm.decide(PROBLEM, [SIGN, LEVEL], calibration=made)
    logprobs = [np.array(answer.diagnostics.logprobs) for answer in raw.answers]
    expected = softmax(logprobs[0] / 3)
    signs, levels = found.answers
    assert signs.type == "choice"
    assert levels.type == "score"
    assert signs.shares == pytest.approx(expected, abs=1e-6)
    assert signs.confidence == pytest.approx(expected.max() / 2, abs=1e-6)
    assert (signs.abstained, signs.answer_set) == (True, None)
    assert signs.diagnostics.logprobs == pytest.approx(logprobs[0], abs=1e-5)
    assert (signs.diagnostics.confidence, signs.diagnostics.calibration) == (
        "calibrated",
        made.digest,
    )
    share = softmax(logprobs[1])
    odds = np.log([(share[1] + share[2]) / share[0], share[2] / (share[0] + share[1])])
    first, second = 1 / (1 + np.exp(-(odds / 2 + [0.2, -0.2])))
    second = min(first, second)
    mine = np.array([1 - first, first - second, second])
    assert levels.shares == pytest.approx(mine, abs=1e-6)
    assert levels.answer_set is not None
    inside = np.flatnonzero(mine >= 0.25)
    assert levels.answer_set.values == tuple(range(inside[0], inside[-1] + 1))
    assert (levels.answer_set.coverage, levels.answer_set.n) == (0.9, 99)
    assert levels.abstained is None
    nothing = file_of(types={"score": fit_of(None, type="score", sets=sets | {"least": 1.0})})
    empty = llm.decide(PROBLEM, [LEVEL], calibration=nothing)
    assert empty.answers[0].abstained is True
    assert "no answer is probable enough for the answer set" in empty.warnings[-1]


def test_at_the_threshold_a_question_is_answered_and_just_below_it_is_not(llm: LLM) -> None:
    [free] = llm.decide(
        PROBLEM, [SIGN], calibration=file_of(types={"choice": fit_of(None)})
    ).answers
    for least, expected in ((free.confidence, False), (np.nextafter(free.confidence, 1), True)):
        gate = THRESHOLD | {"score": least}
        made = file_of(types={"choice": fit_of(None, threshold=gate)})
        [answer] = llm.decide(PROBLEM, [SIGN], calibration=made).answers
        assert (answer.confidence, answer.abstained) == (free.confidence, expected)


def test_a_set_of_levels_has_no_gap() -> None:
    fit = fit_of(None, sets={"coverage": 0.9, "num_labels": 99, "least": 0.3})
    behind = {"label_mass": 1.0, "argmax_is_label": True, "logprobs": (-1.0, -1.0, -1.0)}
    behind |= {"reading": "menu", "passes": 1, "confidence": "top"}
    found = fit.calibrated(
        LEVELS, Finding([0.45, 0.1, 0.45], 0.5, Diagnostics.model_validate(behind))
    )
    assert found.answer_set is not None
    assert found.answer_set.values == (0, 1, 2)


@pytest.mark.parametrize(
    ("made", "questions", "params", "message"),
    [
        (file_of("other"), [SIGN], None, "with model other, and this has countdown"),
        (file_of(fingerprint="0"), [SIGN], None, "with fingerprint 0, and this has "),
        (file_of(), [SIGN], None, "and this has a choice named 'sign'"),
        (file_of(types={"score": fit_of(None)}), [SIGN], None, "any score, and this has a choice"),
        (
            file_of(names={"sign": fit_of(THREE)}), [SIGN], None,
            'with question {"instructions":"","choices":[{"value":"a"}',
        ),
        (
            file_of(types={"choice": fit_of(None)}), [SIGN], DecisionParams(layout="questions"),
            "with layout cloze, and this has questions",
        ),
        (
            file_of(types={"score": fit_of(None, type="score", map={"method": "platt", "tails": [
                {"method": "platt", "slope": 1, "intercept": 0, "lowest_score": 0,
                 "highest_score": 1}]})}), [LEVEL], None, "with answers 2, and this has 3",
        ),
        (
            file_of(names={"sign": fit_of(None, type="score")}), [SIGN], None,
            "with type score, and this has choice",
        ),
        (
            file_of(types={"choice": fit_of(None)}, chat=False), [SIGN], None,
            "with chat False, and this has True",
        ),
    ],
)  # fmt: skip
def test_it_is_refused_for_anything_else(
    llm: LLM,
    made: DecisionCalibration,
    questions: list[Question],
    params: DecisionParams | None,
    message: str,
) -> None:
    with pytest.raises(InputError) as refused:
        llm.decide(PROBLEM, questions, params, calibration=made)
    assert message in str(refused.value)


def test_a_map_of_choices_is_none_of_a_score() -> None:
    with pytest.raises(ValidationError, match="fit is not for a score"):
        fit_of(None, type="score", map=maps.Temperature(temperature=1))


OLD_FIGURES = (
    '"num_bins":10,"ece":0.144,"adaptive_ece":0.143,"smooth_ece":0.136,"brier":0.199,'
    '"brier_skill":-0.001,"auroc":0.737'
)
OLD = (
    '{"model":"countdown","fingerprint":null,"source":"p.jsonl","version":1,"params":{"reading":'
    '"menu","orders":1,"confidence":"label-mass","joint":false,"layout":"cloze"},"chat":true,'
    '"names":{"sign":{"type":"choice","question":{"instructions":"18","name":null,"type":"choice",'
    '"choices":[{"value":"+","description":null},{"value":"-","description":null},{"value":"*",'
    '"description":null}]},"map":{"method":"temperature","temperature":2.172832304271773,"top":null'
    '},"num_labels":350,"num_inputs":350,"before":{' + OLD_FIGURES + '},"after":{' + OLD_FIGURES
    + '},"threshold":{"score":0.35261829801178307,"rule":"sgr","max_risk":0.3,"confidence":0.95,'
    '"num_labels":350,"coverage":0.9971428571428571,"risk":0.25501432664756446,"bound":'
    '0.29629658373147727},"sets":{"coverage":0.9,"num_labels":350,"least":0.21650511719538054}}},'
    '"types":{}}'
)  # fmt: skip
"""Written by `dise calibrate --decisions` of 0.1.0, its figures cut short."""


def test_a_file_of_the_last_release_answers_as_it_did(llm: LLM, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(OLD)
    [raw] = llm.decide(PROBLEM, [SIGN], DecisionParams(layout="cloze")).answers
    [found] = llm.decide(PROBLEM, [SIGN], calibration=tmp_path / "old.json").answers
    expected = softmax(np.array(raw.diagnostics.logprobs) / 2.172832304271773)
    assert found.shares == pytest.approx(expected, abs=1e-6)
    assert found.abstained == (expected.max() < 0.35261829801178307)
    assert found.answer_set is not None
    inside = np.flatnonzero(expected >= 0.21650511719538054)
    assert found.answer_set.values == tuple("+-*"[place] for place in inside)


def test_what_is_asked_in_one_text_has_no_calibration() -> None:
    with pytest.raises(ValidationError, match="depends on the other questions"):
        file_of(params=DecisionParams(joint=True))


def test_labels_of_one_kind_beside_what_is_promised_are_told() -> None:
    labels, _ = drawn(np.random.default_rng(6), 400, 3)
    mine, _ = labels.split(0.5)
    right = np.where(np.isin(labels.questions, mine.questions), labels.scores.argmax(1), 0)
    labels = Labels(labels.scores, np.eye(3, dtype=bool)[right], labels.questions)
    with pytest.raises(InputError, match="all 200 labels are right"):
        fitted(labels, THREE, coverage=0.9)


def test_a_conversation_is_one_input_however_its_keys_stand() -> None:
    turn = {"role": "user", "content": "a"}
    asked = {"questions": [SIGN], "labels": {"sign": "+"}}
    answer = SimpleNamespace(shares=[1.0, 0.0, 0.0])
    lines = [
        DecidedLine.model_construct(input=[dict(keys)], answers=[answer], **asked)
        for keys in (turn.items(), reversed(turn.items()))
    ]
    assert {number for *_, number in labelled(lines)} == {0}


def line_of(number: int, question: Question) -> DecidedLine:
    answer = SimpleNamespace(shares=[0.2, 0.3, 0.5])
    asked = {"questions": [question], "labels": {question.name: "+"}}
    return DecidedLine.model_construct(input=f"{number} " * 500, answers=[answer], **asked)


@pytest.mark.parametrize("num_questions", [1, 1000])
def test_a_labelled_answer_takes_less_than_a_kilobyte(num_questions: int) -> None:
    """Of long inputs and, in the second case, of as many questions as there are answers."""
    asked = [SIGN.model_copy(update={"instructions": f"{n}" * 50}) for n in range(num_questions)]
    tracemalloc.start()
    found = labelled(line_of(n, asked[n % num_questions].model_copy()) for n in range(1000))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 1000 < 1000
    assert len({nameless(question).model_dump_json() for question, *_ in found}) == min(
        num_questions, 2
    )
    labels = labels_of_lines(found)
    assert labels.scores[7].tolist() == [0.2, 0.3, 0.5]
    assert labels.num_questions == 1000


def problems(count: int) -> list[dict[str, Any]]:
    """Sums with the sign that makes them; half of them as the model would never write them."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(count):
        a, b = random.integers(2, 50, 2).tolist()
        sign = "+" if random.random() < 0.5 else "-"
        target = abs(a + b if sign == "+" else a - b) or 1
        asked = {"type": "choice", "name": "sign", "instructions": f"{max(a, b)}"}
        questions = [{**asked, "choices": ["+", "-"]}]
        truth = sign if random.random() < 0.9 else "+"
        rows.append({"input": f"{a},{b} -> {target}", "questions": questions,
                     "labels": {"sign": truth}, "id": len(rows)})  # fmt: skip
    return rows


def decided(dise: Dise, folder: Path, *rows: dict[str, Any]) -> Path:
    """Return a file of the rows with their answers."""
    given, raw = written(folder / "in.jsonl", *rows), folder / "raw.jsonl"
    run = dise("decide", "--input", given, "--output", raw, "--layout", "cloze")
    assert (run.code, run.err) == (0, f"dise: {len(rows)} answered\n")
    return raw


def test_a_file_is_decided_labelled_fitted_and_used(dise: Dise, tmp_path: Path) -> None:
    rows = problems(420)
    raw, file = decided(dise, tmp_path, *rows), tmp_path / "c.json"
    first = records_of(raw)[0]
    assert first.items() >= rows[0].items()
    assert first["params"]["layout"] == "cloze"
    more = ("--coverage", "0.9", "--max-risk", "0.4", "--rule", "ltt")
    run = dise("calibrate", raw, "--decisions", "--output", file, *more)
    assert (run.code, run.err) == (0, "")
    assert "name sign" in run.out
    assert file.with_suffix(".png").stat().st_size > 0
    made = DecisionCalibration.load(file)
    assert made.names["sign"].question is None, "they were of several wordings"
    assert made.names["sign"].num_labels + made.names["sign"].sets.num_labels <= 420  # type: ignore[union-attr]
    given, again = tmp_path / "in.jsonl", tmp_path / "again.jsonl"
    run = dise("decide", "--input", given, "--output", again, "--calibration", file)
    assert run.code == 0, run.err
    [answer] = records_of(again)[0]["answers"]
    assert answer["diagnostics"]["calibration"] == made.digest
    assert answer["answer_set"]["coverage"] == 0.9
    assert answer["abstained"] in (True, False)
    run = dise("calibrate", again, "--decisions", "--output", tmp_path / "d.json")
    assert "it is calibrated already" in run.err
    run = dise("decide", rows[0]["input"], "--choice", "18=+,-", "--calibration", file)
    assert (run.code, "answer set" in run.out) == (0, True)


def test_a_name_of_several_types_has_no_fit_of_its_own(dise: Dise, tmp_path: Path) -> None:
    rows = problems(420)
    for row in rows[::2]:
        [asked] = row["questions"]
        own = {"type": "predicate", "name": "sign", "instructions": asked["instructions"]}
        row["questions"] = [own | {"yes": "+", "no": "-"}]
        row["labels"] = {"sign": row["labels"]["sign"] == "+"}
    raw = decided(dise, tmp_path, *rows)
    run = dise("calibrate", raw, "--decisions", "--output", tmp_path / "c.json")
    assert "name sign: left out, its labels are of several types: name them apart" in run.out
    made = DecisionCalibration.load(tmp_path / "c.json")
    assert (set(made.names), set(made.types)) == (set(), {"choice", "predicate"})


@pytest.mark.parametrize(
    "probabilities", [[5.0, -4.0], [0.0, 0.0], [0.2, 0.2], [1.0], [0.5, 0.5, 0.0]]
)
def test_probabilities_that_are_none_are_told_with_their_line(
    dise: Dise, tmp_path: Path, probabilities: list[float]
) -> None:
    raw = decided(dise, tmp_path, *problems(1))
    [line] = records_of(raw)
    pairs = [{"value": f"{n}", "probability": p} for n, p in enumerate(probabilities)]
    line["answers"][0]["probabilities"] = pairs
    run = dise("calibrate", written(raw, line), "--decisions", "--output", tmp_path / "c.json")
    assert "line 1" in run.err
    assert "the answer to 'sign' was not written by dise" in run.err


def test_a_wrong_row_is_an_error_in_its_place_and_a_run_goes_on(dise: Dise, tmp_path: Path) -> None:
    rows: list[Any] = [{"input": PROBLEM, "n": 1}, {"n": 2}]
    given, output = written(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl"
    ask = ("decide", "--input", given, "--output", output, "--layout", "cloze")
    run = dise(*ask, "--choice", "18=+,-")
    assert run.code == 1
    assert [line["n"] for line in records_of(output)] == [1]
    written(given, *rows[:1], {"input": "1,2 -> 3", "n": 2})
    assert "--choice and --scale" not in dise(*ask, "--choice", "18=+,-", "--resume").err
    assert [line["n"] for line in records_of(output)] == [1, 2]
    run = dise(*ask, "--choice", "18=+,*", "--resume")
    assert "holds a run with questions=[{" in run.err


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ({}, ("--method", "platt"), "--decisions takes no --method"),
        ({"labels": {"size": 1}}, (), "no question is named 'size'"),
        ({"labels": {"sign": "*"}}, (), "the label '*' is not one of ['+', '-']"),
        ({"labels": {"sign": "+"}}, (), "name sign: 1 labels are too few"),
        ({"params": 3}, (), "params=3"),
        (
            {"n": 1},
            (),
            "labelled.jsonl has a label: give lines of `dise decide --output` the right",
        ),
        ({"labels": {}}, (), 'as "labels": {"reaches": true}'),
    ],
)
def test_what_cannot_be_fitted_is_told(
    dise: Dise, tmp_path: Path, change: dict[str, Any], more: tuple[str, ...], message: str
) -> None:
    [row] = problems(1)
    labels = row.pop("labels")
    [line] = records_of(decided(dise, tmp_path, row))
    changed = line | ({"labels": labels} if "params" in change else {}) | change
    path = written(tmp_path / "labelled.jsonl", changed)
    run = dise("calibrate", path, "--decisions", "--output", tmp_path / "c.json", *more)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize(("orders", "is_kept"), [(1, True), ("cyclic", False)])
def test_a_file_from_before_one_order_loads(tmp_path: Path, orders: object, is_kept: bool) -> None:
    file, made = tmp_path / "c.json", file_of().to_dict()
    made["params"] |= {"orders": orders}
    file.write_text(json.dumps(made))
    refused = pytest.raises(InputError, match="option 'orders' was taken out")
    with nullcontext() if is_kept else refused:
        assert DecisionCalibration.of(file).params == DecisionParams(layout="cloze")


def test_a_coverage_without_decisions_is_refused(dise: Dise, tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", {})
    run = dise("calibrate", path, "--output", tmp_path / "c.json", "--coverage", "0.9")
    assert "--coverage goes with --decisions" in run.err


def test_a_server_answers_by_a_calibration(tmp_path: Path) -> None:
    sets = {"coverage": 0.9, "num_labels": 99, "least": 0.0}
    hot = fit_of(None, map=maps.Temperature(temperature=3.0), sets=sets)
    made = file_of(
        types={
            "choice": hot,
            "predicate": hot.model_copy(update={"map": None, "type": "predicate"}),
        }
    )
    file = tmp_path / "c.json"
    file.write_text(json.dumps(made.to_dict()))
    with serving(AsyncLLM("countdown"), options={"decision_calibration": str(file)}) as url:
        body = SIGN.model_dump(mode="json") | {"choices": [{"value": v} for v in "+-*"]}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            decision = client.decisions.create(model="countdown", input=PROBLEM, questions=[body])
        expected = LLM("countdown").decide(PROBLEM, [SIGN], calibration=made).answers[0]
        [answer] = decision.answers
        assert answer.confidence == pytest.approx(expected.confidence, abs=1e-5)
        assert answer.answer_set == {"values": ["+", "-", "*"], "coverage": 0.9, "n": 99}
        assert decision.dise["diagnostics"][0]["calibration"] == made.digest
        asked = {"input": PROBLEM, "questions": [body], "dise": {"layout": "questions"}}
        refused = httpx.post(f"{url}/v1/decisions", json=asked, timeout=30)
        assert "with layout cloze, and this has questions" in refused.json()["error"]["message"]
    with pytest.raises(InputError, match="there is no calibration file"):
        create_app(Service(Limits(), None, {"decision_calibration": "lost.json"}))
