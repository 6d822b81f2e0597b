"""An answer while it is written, dim until its final probabilities are known."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from dise_app.terminal.render import show_answer, show_legend
from dise_app.terminal.styles import printable, shade
from dise_core import LLM, CanvasToken, CanvasUpdate, Plan, RequestOutput

MASK = "\N{MEDIUM SHADE}"


@dataclass(slots=True)
class Unfolding:
    """A response so far: its tokens with their first log-probabilities, and the final ones."""

    num_tokens: int = 0
    tokens: dict[int, tuple[CanvasToken, float | None]] = field(default_factory=dict)
    logprobs: dict[int, float] = field(default_factory=dict)

    def take(self, update: CanvasUpdate) -> None:
        if update.is_fresh:
            self.tokens, self.logprobs = {}, {}
        self.num_tokens = update.num_tokens
        for token, logprob in zip_longest(update.committed, update.logprobs):
            self.tokens[token.position] = token, logprob
        self.logprobs |= dict(update.scored)

    def text(self) -> Text:
        """Return the response: final tokens in full colours, others dim, masks shaded."""
        text = Text("  ")
        for position in range(self.num_tokens):
            token, first_logprob = self.tokens.get(position, (None, None))
            if token is None:
                text.append(MASK, style="dim")
            elif not token.is_end:
                style = f"dim {shade(first_logprob)}".rstrip()
                if position in self.logprobs:
                    style = shade(self.logprobs[position])
                text.append(printable(token.text), style=style)
        return text


@dataclass(frozen=True, slots=True)
class Following:
    """Responses as they are written; long ones around the last written token."""

    texts: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(Group(*self.texts), options, pad=False)
        height = max(console.height - 2, 1)
        has_text = [any(part.text.strip(f"{MASK} \n") for part in line) for line in lines]
        bottom = max((at for at, is_written in enumerate(has_text) if is_written), default=0)
        top = max(min(bottom + 2, len(lines)) - height, 0)
        for line in lines[top : top + height]:
            yield from line
            yield Segment.line()


def show(llm: LLM, plan: Plan[RequestOutput], shows_seed: bool) -> None:
    """Print the plan's answer, which the terminal shows while it is written."""
    console = Console(highlight=False, emoji=False)
    answer = answered(console, llm, plan)
    show_answer(console, answer, shows_seed=shows_seed)
    show_legend(console, [answer])


def answered(console: Console, llm: LLM, plan: Plan[RequestOutput]) -> RequestOutput:
    """Return the plan's answer, and show on the terminal how it is written."""
    canvases: dict[int, Unfolding] = {}
    with Live(
        console=console, transient=True, refresh_per_second=12, redirect_stderr=sys.stderr.isatty()
    ) as live:
        for event in llm.watch(plan):
            if isinstance(event, RequestOutput):
                return event
            canvases.setdefault(event.index, Unfolding()).take(event)
            live.update(Following([canvases[index].text() for index in sorted(canvases)]))
    raise AssertionError("a stream ends with its answer")
