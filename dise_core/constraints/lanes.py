"""The lanes of those who build: at first each build gets a moment, so that short ones are soon
done; one that needs longer begins anew where few run at a time.
"""

from dataclasses import dataclass

MAX_BYTES = 1 << 30
"""Of memory that a build may take."""


@dataclass(frozen=True, slots=True)
class Lane:
    """seconds: of processor time that a build may take. patience: seconds that may pass meanwhile.
    nice: how far it stands back for others. slots: how many run at once. longest_line: seconds that
    a build may have to wait for its turn.
    """

    seconds: float
    patience: float
    nice: int
    slots: int
    longest_line: float


QUICK, SLOW = 0, 1
LANES = (Lane(0.4, 1.5, 3, 2, 4.0), Lane(2.0, 20.0, 5, 1, 20.0))
"""By their number."""
