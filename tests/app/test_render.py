"""Answers on the terminal."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from dise_app.terminal.render import coloured, empty_text, score_text, show_answer, show_legend
from dise_app.terminal.styles import shade
from dise_core import CompletionOutput, RequestOutput, RevisedToken, Revision, Score, Token, Usage
from dise_core.history import Writing


def output_of(*tokens: Token, value: float = -0.5, error: float | None = None) -> CompletionOutput:
    score = Score(value, np.arange(2), error)
    text = "".join(token.text for token in tokens if not token.is_end)
    return CompletionOutput(
        text, tuple(token.id for token in tokens), "stop", score, "dise", "last-10", tokens
    )


def token(text: str, logprob: float = 0.0, selected: bool = False, is_end: bool = False) -> Token:
    return Token(1, text, logprob, selected, is_end)


def shown(output: CompletionOutput, prompt: str = "p", verdict: str = "") -> str:
    stream = io.StringIO()
    answer = RequestOutput(prompt, (1,), "toy", (output,), Usage(1, 1, 1, 1.0, 0.5))
    show_answer(Console(file=stream, width=120), answer, verdict=verdict)
    return stream.getvalue()


def test_on_a_terminal_of_80_columns_lines_fold_between_words() -> None:
    stream, words = io.StringIO(), "  and a verdict of many words that goes on and on"
    answer = RequestOutput("p", (1,), "toy", (output_of(token("a")),), Usage(1, 1, 1, 1.0, 0.5))
    console = Console(file=stream, width=80, force_terminal=True, color_system="standard")
    show_answer(console, answer, verdict=words)
    show_legend(console, [answer])
    text = Text.from_ansi(stream.getvalue()).plain
    folded = [line for line in text.splitlines() if line.startswith("    ")]
    assert folded
    assert max(map(len, text.splitlines())) <= 80
    piped = shown(output_of(token("a")), verdict=words)
    assert [line for line in piped.splitlines() if line.endswith(words)], "a pipe gets it whole"
    assert " ".join(piped.split()) in " ".join(text.split())


def test_a_colour_tells_the_probability() -> None:
    colours = {1.0: "green", 0.91: "green", 0.5: "yellow", 0.2: "dark_orange", 0.01: "red"}
    assert {share: shade(math.log(share)) for share in colours} == colours
    assert shade(-math.inf) == "red"


def test_selected_tokens_are_underlined_and_end_tokens_left_out() -> None:
    text = coloured(
        output_of(token("a"), token("b", -5.0, selected=True), token("<end>", is_end=True))
    )
    assert text.plain == "ab"
    assert [span.style for span in text.spans] == ["green", "red underline"]


@pytest.mark.parametrize(("text", "shown_text"), [("a\x07bc", "a\ufffdbc"), ("a\x07b", "a\ufffdb")])
def test_an_answer_is_shown_up_to_its_stop_text(text: str, shown_text: str) -> None:
    mean = Score.mean_of(np.array([-0.5]), np.array([1]))
    answer = output_of(token("a\x07"), token("bc", -0.5, selected=True), token("!"))
    output = replace(answer, text=text, score=mean)
    assert coloured(output).plain == shown_text
    assert len(coloured(output).spans) == 2
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True, color_system="standard")
    for each in (replace(answer, score=mean), output):
        show_legend(console, [RequestOutput("p", (1,), "toy", (each,), Usage(1, 1, 1, 1.0, 0.5))])
    lines = Text.from_ansi(stream.getvalue()).plain.splitlines()
    of_all = "underlined: the score is their mean log"
    assert lines[1::2] == [of_all, "underlined: what the score looks at"]


def test_control_characters_and_markup_do_not_reach_the_terminal() -> None:
    text = shown(output_of(token("x\x1b]0;hi\x07[bold]\n")), "[red]\x1b[2J", "  well")
    assert not {"\x1b", "\x07"} & set(text)
    for part in ("[red]", "[bold]", "1 forward pass, 0.50 s", "stop)  well"):
        assert part in text


def test_an_empty_answer_says_why_and_what_may_help() -> None:
    """Neither a given text nor one that holds anything does."""
    end = token("<end>", is_end=True)
    alone = output_of(end, end)
    told = shown(alone).splitlines()[3].strip()
    assert told.startswith("The answer is empty: the model wrote end tokens alone.")
    assert all(option in told for option in ("--max-tokens", "confidence_eos_eot_inf=true"))
    cut = replace(output_of(token("a"), end), text="")
    assert "a stop text stands at its beginning" in shown(cut)
    for output in (replace(alone, finish_reason=None), output_of(token("a")), output_of()):
        assert empty_text(output) == ""


def test_a_mean_log_probability_is_told_as_a_probability_too() -> None:
    mean = Score.mean_of(np.log(np.array([0.5, 0.125])), np.arange(2))
    assert score_text(replace(output_of(), score=mean)) == "score -1.3863, 25.0% a token"
    sure = Score.mean_of(np.array([-0.0002]), np.arange(1))
    assert score_text(replace(output_of(), score=sure)) == "score -0.0002, >99.9% a token"
    judged = Score(-1.0, np.arange(2), log_likelihood=-2.0, perplexity=math.e)
    assert score_text(replace(output_of(), score=judged)) == "score -1.0000, 36.8% a token"


def test_a_character_of_several_tokens_has_the_colour_of_the_least_probable() -> None:
    text = coloured(
        output_of(token("", -5.0, selected=True), token("", 0.0), token("é", -0.01), token("a"))
    )
    assert text.plain == "éa"
    assert [span.style for span in text.spans] == ["red underline", "green"]


def test_a_revision_is_told_in_one_line() -> None:
    tokens = (RevisedToken(0, 1, 2), RevisedToken(1, 3, 3), RevisedToken(2, 4, None))
    kept, refused = Revision(tokens, -0.5, -0.25, 3, True), Revision(tokens, -0.25, -1, 3, False)
    told = {
        (kept, refused): "remask: 2 tokens changed in 2 rounds, -0.5000 to -0.2500",
        (refused,): "remask: unchanged after 1 round",
        (): "remask: unchanged after 0 rounds",
    }
    for revisions, line in told.items():
        output = replace(output_of(token("a")), reviser="remask", revisions=revisions)
        assert f"\n  {line}\n" in shown(output)


@pytest.mark.parametrize(
    ("probability", "abstained", "line"),
    [
        (0.432, None, "likely to be right: 43%"),
        (0.001, None, "likely to be right: <1%"),
        (0.999, None, "likely to be right: >99%"),
        (0.432, True, "likely to be right: 43%; abstained, as it is below the threshold"),
        (None, True, "abstained, as it is below the threshold"),
    ],
)
def test_the_probability_of_being_right_stands_above_the_score(
    probability: float | None, abstained: bool | None, line: str
) -> None:
    output = replace(output_of(token("a")), probability=probability, abstained=abstained)
    chance, score = shown(output).splitlines()[2:4]
    assert chance.strip() == line
    assert score.strip().startswith("score -0.5000")


def test_what_was_known_as_it_was_written_stands_beside_the_score() -> None:
    writing = Writing.of(np.array([3, 9]))
    writing.commit(0, np.array([1]), np.array([4]), np.log([0.25]))
    output = replace(output_of(token("a")), writing=writing)
    assert "; written 25.0% (dise" in shown(output)
    assert output.written == pytest.approx(np.log(0.25), abs=1e-6)
    assert "written" not in shown(replace(output, scorer="written")).partition("(")[0]
    assert "written" not in shown(replace(output, writing=None))


def test_why_there_is_no_probability_is_told_once() -> None:
    output = replace(output_of(token("a")), uncalibrated="it was fitted with others")
    assert shown(output).count("no probability of being right: it was fitted with others") == 1
