"""What a stream tells, from its beginning to its end."""

from collections.abc import Iterable

from dise_core import CanvasUpdate, RequestOutput


def parted(
    events: Iterable[CanvasUpdate | RequestOutput],
) -> tuple[list[CanvasUpdate], RequestOutput]:
    """Return the updates and the answer behind them."""
    *updates, answer = events
    assert isinstance(answer, RequestOutput)
    shown = [update for update in updates if isinstance(update, CanvasUpdate)]
    assert shown == updates
    return shown, answer
