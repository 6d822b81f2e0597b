"""The fields of a JSON answer: from the library, the server and on the terminal."""

from __future__ import annotations

import json
import math

import httpx
import numpy as np
import pytest

from dise_app.terminal.render import coloured, field_lines
from dise_app.terminal.styles import shade
from dise_core import LLM, AsyncLLM, CompletionOutput, SamplingParams
from tests.app.serving import serving
from tests.app.test_render import shown
from tests.ascii_model import AsciiPredictor
from tests.calibrations import FIGURES, THRESHOLD, made

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 999, "minimum": 0}, "c": {"const": "x"}},
    "required": ["n", "c"],
}
ASKED = {"constraint": "json-schema", "constraint_settings": {"schema": SCHEMA}}


def written(model: type[AsciiPredictor] = AsciiPredictor, **more: object) -> CompletionOutput:
    fields = {"max_tokens": 30, "seed": 1, **ASKED, **more}
    [answer] = LLM(model()).generate("hi", SamplingParams.model_validate(fields))
    return answer.outputs[0]


@pytest.mark.parametrize("more", [{}, {"logprobs": None}, {"scorer": "written"}])
def test_a_score_is_the_sum_over_the_free_tokens_of_the_report_or_the_writing(
    more: dict[str, object],
) -> None:
    output = written(**more)
    value = json.loads(output.text)["n"]
    assert {name: one.value for name, one in output.fields.items() if one.is_leaf} == {
        "/n": value, "/c": "x"
    }  # fmt: skip
    assert output.writing is not None
    told = output.writing.logprobs[2:].tolist()
    first, digits = output.text.index(str(value)), len(str(value))
    # Three digits cannot go on, so that the comma behind them is certain.
    counted = slice(first, first + min(digits + 1, 3))
    known = told if more else [token.logprob for token in output.tokens]
    assert output.fields["/n"].score == pytest.approx(np.sum(known[counted]))
    assert output.fields["/n"].least == pytest.approx(min(known[counted]))
    assert (output.fields["/c"].score, output.fields["/c"].forced) == (None, True)
    assert json.loads(json.dumps(output.to_dict()))["fields"]["/n"]["value"] == value


def test_in_a_gap_a_score_counts_the_tokens_of_the_gap() -> None:
    params = SamplingParams.model_validate({"max_tokens": 20, "scorer": "written", **ASKED})
    [answer] = LLM(AsciiPredictor()).fill("I say ", " and go.", params)
    output = answer.outputs[0]
    digits = [token.written for token in output.tokens if token.text.isdigit()]
    assert output.fields["/n"].least in digits
    assert not output.fields["/n"].forced


def test_answers_of_no_json_have_no_fields() -> None:
    output = written(constraint="regex", constraint_settings={"regex": '"[0-9]{1,5}"'})
    assert output.fields == {}
    assert "fields" not in output.to_dict()


def test_the_server_tells_them_with_their_probability_and_which_are_abstained() -> None:
    knots = {"method": "isotonic", "scores": [-9.0], "probabilities": [0.25]}
    counts = {"num_labels": 300, "num_right": 150, "num_questions": 300}
    fit = {"map": knots, **counts, "figures": FIGURES, "threshold": THRESHOLD}
    calibration = made(
        model="ascii", fingerprint=None, map=None, threshold=None, fields={"/n": fit}
    )
    llm = AsyncLLM(AsciiPredictor(), calibration=calibration)
    body = {"prompt": "hi", "max_tokens": 30, "seed": 1, "dise": ASKED}
    with serving(llm) as url:
        choice = httpx.post(f"{url}/v1/completions", json=body).json()["choices"][0]
        refused = httpx.post(f"{url}/v1/completions", json=body | {"dise": {"stop_at": 0.5}})
    assert list(choice["dise"]["fields"]) == ["", "/n", "/c"]
    number, constant = choice["dise"]["fields"]["/n"], choice["dise"]["fields"]["/c"]
    assert number["value"] == json.loads(choice["text"])["n"]
    assert choice["text"][slice(*number["span"])] == str(number["value"])
    assert number["probability"] == 0.25
    assert number["abstained"] == (number["score"] < THRESHOLD["score"])
    assert (constant["forced"], constant["score"], constant["probability"]) == (True, None, None)
    assert choice["dise"]["probability"] is None
    assert refused.status_code == 400


def test_on_the_terminal_each_value_has_the_colour_of_its_score() -> None:
    output = written()
    text, number = coloured(output), output.fields["/n"]
    assert text.plain == output.text
    spans = [one for one in text.spans if "underline" not in str(one.style) and one.style]
    assert [(one.start, one.end, one.style) for one in spans] == [
        (*number.span, shade(number.score))
    ]


def test_the_terminal_names_each_value_with_its_score() -> None:
    output = written()
    number = output.fields["/n"]
    assert number.score is not None
    share = "<1%" if number.score < math.log(0.005) else f"{math.exp(number.score):.0%}"
    width = max(len(str(number.value)), 3)
    value = f"{number.value:<{width}}"
    assert [line.plain.strip() for line in field_lines(output)] == [
        f"/n {value}  {share}", "/c " + '"x"'.ljust(width) + "  no other is valid"
    ]  # fmt: skip
    text = shown(output)
    assert f"/n {value}  {share}" in text
    assert "leaves out" not in text


def test_the_terminal_says_where_all_that_is_selected_is_forced() -> None:
    output = written(selector="last-1")
    assert "the constraint forced every token that is selected" in shown(output)
    assert (output.score.value, output.score.under) == (0.0, "forced")
    assert output.fields["/n"].score is not None
