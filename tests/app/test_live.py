"""A response on the terminal while it is written."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from dise_app.cli.answer import is_shown_live
from dise_app.terminal.live import MASK, Following, Unfolding, answered
from dise_core import LLM, BlockCausal, CanvasUpdate, SamplingParams
from dise_core.testing import ToyPredictor
from dise_core.writing.canvas import CanvasToken


def test_finished_blocks_are_coloured_and_masks_stand_for_what_is_to_come() -> None:
    written = Unfolding()
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
    ("is_terminal", "as_json", "is_shown"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_only_a_terminal_shows_it(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, as_json: bool, is_shown: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert is_shown_live([{}], as_json) is is_shown
    assert not is_shown_live([{}, {}], as_json)


def test_a_response_longer_than_the_terminal_is_shown_where_it_is_written() -> None:
    """Ten tokens a line, twelve lines; eight fit."""
    for num_written, shown in ((5, "0"), (95, "9"), (119, "b")):
        text = Text("  ")
        for position in range(120):
            is_written = position < num_written
            text.append(f"{position // 10:x}" if is_written else MASK)
        stream = io.StringIO()
        console = Console(file=stream, width=10, height=10)
        console.print(Following([text]))
        lines = stream.getvalue().splitlines()
        assert len(lines) == 8
        assert any(shown in line for line in lines)
