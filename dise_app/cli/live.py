"""An answer on the terminal while it is written block by block: the tokens of finished blocks in
the colours of their probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dise_app.cli.render import is_coloured, legend, printable, shade, show_answer
from dise_core.canvas import CanvasToken, CanvasUpdate
from dise_core.outputs import RequestOutput
from dise_core.reading import Plan

if TYPE_CHECKING:
    from dise_core.llm import LLM

MASK = "\N{MEDIUM SHADE}"


@dataclass(slots=True)
class Written:
    """One response as far as it is written: its tokens by position, and what is known of them."""

    num_tokens: int = 0
    tokens: dict[int, CanvasToken] = field(default_factory=dict)
    logprobs: dict[int, float] = field(default_factory=dict)

    def take(self, update: CanvasUpdate) -> None:
        """Add what an update tells."""
        if update.is_fresh:
            self.tokens, self.logprobs = {}, {}
        self.num_tokens = update.num_tokens
        self.tokens |= {token.position: token for token in update.committed}
        self.logprobs |= dict(update.scored)

    def text(self) -> Text:
        """Return the response: finished blocks coloured, unfinished tokens dim, masks shaded."""
        text = Text("  ")
        for position in range(self.num_tokens):
            token = self.tokens.get(position)
            if token is None:
                text.append(MASK, style="dim")
            elif not token.is_end:
                known = self.logprobs.get(position)
                text.append(printable(token.text), style="dim" if known is None else shade(known))
        return text


def show(llm: LLM, plan: Plan[RequestOutput], shows_seed: bool) -> None:
    """Run the plan, show on the terminal how its answer is written, and print it."""
    console = Console(highlight=False)
    answer = answered(console, llm, plan)
    show_answer(console, answer, shows_seed=shows_seed)
    if is_coloured(answer):
        console.print(legend())


def answered(console: Console, llm: LLM, plan: Plan[RequestOutput]) -> RequestOutput:
    """Return the plan's answer, and show on the terminal how it is written. Raises what the plan
    raises.
    """
    canvases: dict[int, Written] = {}
    with Live(console=console, transient=True, refresh_per_second=12) as live:
        for event in llm.watch(plan):
            if isinstance(event, RequestOutput):
                return event
            canvases.setdefault(event.index, Written()).take(event)
            live.update(Group(*(canvases[index].text() for index in sorted(canvases))))
    raise AssertionError("a stream ends with its answer")
