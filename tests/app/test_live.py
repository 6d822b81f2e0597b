"""A response on the terminal while it is written."""

import io

from rich.console import Console

from dise_app.cli.live import Written, answered
from dise_app.cli.render import show
from dise_core import LLM, BlockCausal, CanvasUpdate, SamplingParams
from dise_core.canvas import CanvasToken
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


def test_only_a_terminal_shows_it(capsys) -> None:  # type: ignore[no-untyped-def]
    llm = LLM(ToyPredictor(attention=BlockCausal(4)))
    params = SamplingParams(max_tokens=6, seed=1)
    show(llm, [{}], lambda _: llm.planner.generate("abc", params), as_json=False)
    printed = capsys.readouterr().out
    assert "▒" not in printed
    assert "forward passes" in printed
