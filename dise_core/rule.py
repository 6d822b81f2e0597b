"""What the response of a text must match."""

from abc import ABC, abstractmethod

from dise_core.arrays import Ids, Mask


class TextRule(ABC):
    """What the response of a text must match. is_json: whether what matches is JSON."""

    @property
    def is_json(self) -> bool:
        return False

    @abstractmethod
    def is_forced(self, response: Ids) -> Mask:
        """Return which tokens of a response [R] were certain from earlier ones."""
