"""The five things that can be replaced: selectors, scorers, length controllers, unmasking policies,
mask predictors.

The first four are strategies: frozen pydantic models whose fields are their settings, so unknown
settings fail and no request's state can live in them. Override the abstract methods, nothing else,
and register the class in a plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict

from dise_core.arrays import Floats, Ids, Mask
from dise_core.noise import Noise
from dise_core.outputs import Generation, Score
from dise_core.reading import CacheHint, Confidence, Plan, Read, Reading
from dise_core.sequence import SpecialTokens, TokenSequence

if TYPE_CHECKING:
    from dise_core.denoise import Denoiser
    from dise_core.params import EngineConfig
    from dise_core.scoring import SequenceScorer


class Strategy(BaseModel, ABC):
    """Base of all strategies: its fields are its settings; frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Selector(Strategy):
    """Chooses the positions that a score is taken over: the paper's binary mask M."""

    @abstractmethod
    def select(self, sequence: TokenSequence) -> Mask:
        """Return M, bool [N]. Leaves the sequence unchanged; an empty choice is allowed."""


class Scorer(Strategy):
    """Says how sure the model is of a finished text. Higher is surer."""

    default_selector: ClassVar[str] = "last-10"
    """The positions that it scores where the user names none."""

    asks: ClassVar[Literal["target", "judge"]] = "target"
    """Whom it asks: the diffusion model itself, or an auto-regressive judge."""

    @abstractmethod
    def score(self, sequence: TokenSequence, selector: Selector) -> Plan[Score]:
        """Return a plan of the text's score over the positions that the selector chooses."""


class LengthController(Strategy):
    """Decides how long the response becomes, and denoises it."""

    @abstractmethod
    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        """Return a plan of the response to prompt, int64 [P]; the base length is
        `denoiser.max_tokens`.

        Raises InputError before it reads anything if the settings do not fit the request.
        """


@dataclass(frozen=True, slots=True, eq=False)
class UnmaskingStep:
    """What a policy may look at: the masked positions of the block and the model's confidence in
    each candidate.

    positions: int64 [M], ascending. confidences: float64 [M], of the policy's kind. quota: how many
    tokens the schedule commits in this step, 1..M, or 0 for a policy that does not use it. share:
    the same as a share of M, 1 at the last step.
    """

    positions: Ids
    confidences: Floats
    quota: int
    share: float
    noise: Noise

    def random(self) -> Floats:
        """Return one uniform number per position, independent of those that drew the candidates,
        float64 [M].
        """
        return self.noise.uniforms(self.positions, purpose=1)


class UnmaskingPolicy(Strategy):
    """Chooses which masked positions are committed in a denoising step."""

    confidence: ClassVar[Confidence] = "probability"
    """The kind of confidence that the policy ranks by."""

    uses_quota: ClassVar[bool] = True
    """Whether the policy commits what the schedule says; False for one that decides how many by
    itself.
    """

    @property
    def is_random(self) -> bool:
        """Whether two samples may differ though every token is the likeliest one."""
        return False

    @abstractmethod
    def choose(self, step: UnmaskingStep) -> Ids:
        """Return indices into step.positions, int64, each at most once; at least one where the
        policy uses the quota.
        """


class Tokenizer(ABC):
    """Turns text into ids and back."""

    @property
    @abstractmethod
    def has_chat_template(self) -> bool:
        """True if `chat_text` works."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of a text as it is, without special tokens around it, int64 [N].

        Raises InputError for characters that the vocabulary lacks.
        """

    @abstractmethod
    def chat_text(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as the model's chat template writes it, up to where the model
        answers.

        Raises InputError for messages that the template refuses.
        """

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> Ids:
        """Return the ids of a conversation up to where the model answers, int64 [N]."""
        return self.encode(self.chat_text(messages))

    @property
    @abstractmethod
    def start_ids(self) -> Ids:
        """The ids that stand before a text without a chat template, int64 [0] or [1]: the
        begin-of-text token.
        """

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """Return the text of ids, special tokens left out."""

    @abstractmethod
    def token_text(self, token_id: int) -> str:
        """Return one token as text, special tokens by their name."""


class CacheRoom(Protocol):
    """Where a predictor keeps keys and values, as the engine sees it: texts that find no room wait
    for some.
    """

    @property
    def num_free(self) -> int:
        """Tokens for which there is room."""

    def missing(self, hint: CacheHint, length: int) -> int:
        """Return for how many more tokens there must be room to keep a text of that length; 0 where
        it never could be.
        """


class MaskPredictor(ABC):
    """A loaded model that answers Reads."""

    name: str
    """How the user named the model."""

    tokenizer: Tokenizer
    special: SpecialTokens

    vocab_size: int
    """Token ids are below this."""

    max_length: int
    """The longest sequence that the model takes, in tokens."""

    is_causal: bool = False
    """True for an auto-regressive model: it answers position i from the tokens before it, and
    position 0 never.
    """

    tempered_confidence: bool = False
    """Whether its published sampler ranks candidates by the distribution that they are drawn from.
    """

    room: CacheRoom | None = None
    """Where it keeps what a Read's cache hint allows; None for a predictor without a cache."""

    @classmethod
    @abstractmethod
    def claims(cls, model: str) -> bool:
        """Return whether this adapter can load the model (a name, folder or hub id): False for one
        that it cannot know.

        Reads no weights, and asks the hub for nothing but a hub id's config.json.
        """

    @classmethod
    def explain(cls, model: str) -> str | None:  # noqa: ARG003
        """Return, in one sentence, what this adapter knows of a model that no adapter claims; None
        knows nothing.

        Raises the InputError or ModelError that keeps it from knowing: there is no such folder, the
        hub does not answer.
        """
        return None

    @classmethod
    @abstractmethod
    def load(cls, model: str, config: EngineConfig) -> Self:
        """Load the model. Raises ModelError with one line that says what to do."""

    @abstractmethod
    def read(self, reads: Sequence[Read]) -> Sequence[Reading]:
        """Answer the reads, in their order; a read alone and among others gets the same answer.

        Token ids are in [0, vocab_size) and rows no longer than max_length: the engine has checked.
        """
