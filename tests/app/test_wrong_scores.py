"""The numbers of docs/wrong-scores.md, by the commands that it names."""

from __future__ import annotations

import json

import pytest

from tests.commands import Dise
from tests.pages import ROOT

PAGE = (ROOT / "docs/wrong-scores.md").read_text()
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in PAGE.partition("| selector |")[2].splitlines()[2:]
    if line.startswith("|")
]
PROMPT = "83,18,75 -> 10"
TEXT = "18+75=93,93-83=10<answer>18+75-83</answer>"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_number_of_the_table_is_what_its_command_prints(row: list[str], dise: Dise) -> None:
    selector, *shown = row
    common = ("--selector", selector, "--json")
    given = ("score", "--prompt", PROMPT, "--response", TEXT, *common)
    commands = [
        ("generate", PROMPT, "--max-tokens", 48, "--block-length", 16, *common),
        given,
        (*given, "--unfinished"),
    ]
    outputs = [json.loads(dise(*command).out)["outputs"][0] for command in commands]
    assert {output["text"] for output in outputs} == {TEXT}
    values = [outputs[0].get("written"), *(output["score"]["value"] for output in outputs)]
    expected = [None if number == "-" else float(number) for number in shown]
    assert values == [e if e is None else pytest.approx(e, rel=0.02, abs=2e-3) for e in expected]


def test_the_page_names_what_the_command_says(dise: Dise) -> None:
    told = dise("generate", PROMPT, "--max-tokens", 48, "--block-length", 16, "--explain").out
    assert "ends with <|endoftext|> x21" in told
    assert r"ends with \<\|endoftext\|\> x21" in PAGE
    for column in ("step", "written", "why"):
        assert f" {column}" in told, column
        assert f"`{column}`" in PAGE, column
    assert "forced by the constraint" in PAGE
    assert len(PAGE.split()) <= 500
