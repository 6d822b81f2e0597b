"""A response on the terminal while it is written."""

import io

import pytest
from rich.console import Console

from dise_app.cli.answer import is_shown_live
from dise_app.cli.live import Written, answered, show
from dise_core import LLM, BlockCausal, CanvasUpdate, SamplingParams
from dise_core.canvas import CanvasToken
from dise_core.model import BIDIRECTIONAL, Attention
from dise_core.testing import ToyPredictor


def test_finished_blocks_are_coloured_and_masks_stand_for_what_is_to_come() -> None:
    written = Written()
    first = (CanvasToken(0, 1, "b", False), CanvasToken(2, 3, "\x1b", False))
    written.take(CanvasUpdate(0, first, 4, "", "", True))
    assert written.text().plain == "  b▒\N{REPLACEMENT CHARACTER}▒"
    more = (CanvasToken(1, 2, "c", False), CanvasToken(3, 10, "<end>", True))
    written.take(CanvasUpdate(0, more, 5, "", "", False, ((0, -0.01), (1, -5.0))))
    assert written.text().plain == "  bc\N{REPLACEMENT CHARACTER}▒"
    assert [span.style for span in written.text().spans][:3] == ["green", "red", "dim"]
    written.take(CanvasUpdate(0, (), 2, "", "", True))
    assert written.text().plain == "  ▒▒"


def test_the_answer_is_the_one_that_would_be_written_unseen() -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    params = SamplingParams(max_tokens=14, n=2, temperature=1.0, seed=1)
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True)
    answer = answered(console, llm, llm.planner.generate("abc", params))
    [plain] = llm.generate("abc", params)
    assert [output.token_ids for output in answer.outputs] == [
        output.token_ids for output in plain.outputs
    ]
    assert "▒" in stream.getvalue()


@pytest.mark.parametrize(
    ("is_terminal", "as_json", "attention", "is_shown"),
    [
        (True, False, BlockCausal(4), True),
        (False, False, BlockCausal(4), False),
        (True, True, BlockCausal(4), False),
        (True, False, BIDIRECTIONAL, False),
    ],
)
def test_only_a_terminal_shows_it_and_only_of_a_model_that_writes_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    as_json: bool,
    attention: Attention,
    is_shown: bool,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    llm = LLM(ToyPredictor(attention=attention))
    assert is_shown_live(llm, [{}], as_json) is is_shown
    assert not is_shown_live(llm, [{}, {}], as_json)


def test_the_answer_follows_with_its_cost_and_the_legend(
    capsys: pytest.CaptureFixture[str],
) -> None:
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    show(llm, llm.planner.generate("abc", SamplingParams(max_tokens=6, seed=1)), shows_seed=True)
    printed = capsys.readouterr().out
    assert "forward passes" in printed
    assert "seed 1" in printed
    assert "probability" in printed
