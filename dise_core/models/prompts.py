"""Turns users' prompts, conversations and responses into token ids, and checks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dise_core.arrays import Ids
from dise_core.errors import InputError, TooLongError
from dise_core.models.inputs import check_choice, check_list, check_messages, variables_of
from dise_core.models.predictor import MaskPredictor
from dise_core.models.tokenizer import FunctionTool, Message, Tokenizer
from dise_core.records import Fields
from dise_core.sequence import TokenSequence, as_ids, check_token_ids

CHARACTERS_PER_TOKEN = 128
"""More than the tokens of a text ever have on average."""

Prompt = str | Sequence[int]
"""A text, or token ids that are used as they are."""


@dataclass(frozen=True, slots=True)
class GivenPrompt:
    """A prompt as the model reads it, ids int64 [P], with the text or conversation that
    it was given as, if any. is_turn: whether the response is a turn of a conversation, as
    after token ids it is for a model with a chat template. suffix: what follows a gap,
    int64 [S]; empty where the response ends the text; suffix_text: as it was given, if as
    a text.
    """

    ids: Ids
    text: str | None = None
    messages: tuple[Message, ...] = ()
    tools: tuple[FunctionTool, ...] = ()
    is_turn: bool = False
    suffix: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    suffix_text: str | None = None

    @property
    def is_gap(self) -> bool:
        return len(self.suffix) > 0


@dataclass(frozen=True, slots=True)
class Translation:
    """Translates texts with one prompt into the tokens of a judge.

    A conversation goes through the judge's chat template if it has one. Any other prompt,
    with token ids decoded first, stands as plain text between the begin-of-text token and
    the response. The response is tokenized separately, without its end tokens. tokenizer:
    the target model's.
    """

    prompt: GivenPrompt
    tokenizer: Tokenizer
    judge: MaskPredictor

    def of(self, sequence: TokenSequence) -> TokenSequence:
        """Return the text in the judge's tokens. InputError for none or too many."""
        prompt_ids, info = self._prompt_ids(sequence), self.judge.info
        response = self.tokenizer.decode(sequence.ids[sequence.text_positions])
        response_ids = self.judge.tokenizer.encode(response)
        if len(response_ids) == 0:
            raise InputError(
                f"the tokenizer of {info.name!r} makes no token of the response", "response"
            )
        if (num_tokens := len(prompt_ids) + len(response_ids)) > info.max_length:
            raise TooLongError(
                f"a text of {num_tokens} tokens is longer than the limit of "
                f"{info.name!r}: {info.max_length}"
            )
        facts, spell = (info.special, sequence.block_length), self.judge.tokenizer.spell
        return TokenSequence.of(prompt_ids, response_ids, *facts, spell=spell)

    def _prompt_ids(self, sequence: TokenSequence) -> Ids:
        prompt, judge = self.prompt, self.judge.tokenizer
        if prompt.messages and judge.has_chat_template:
            return judge.encode_chat(prompt.messages, prompt.tools)
        text = self.tokenizer.decode(sequence.prompt) if prompt.text is None else prompt.text
        return np.concatenate([judge.start_ids, judge.encode(text)])


@dataclass(frozen=True, slots=True)
class Prompts:
    """Tokenizes and checks texts for the loaded models, "target" and maybe "judge"."""

    predictors: Mapping[str, MaskPredictor]

    @property
    def predictor(self) -> MaskPredictor:
        return self.predictors["target"]

    def read(self, prompt: Prompt, chat: bool | None) -> GivenPrompt:
        """Return the prompt, tokenized. chat: whether by the chat template; None: if it
        has one.

        Raises InputError for an empty text, unknown ids, and chat=True without a
        template.
        """
        tokenizer = self.predictor.tokenizer
        check_choice(chat, "chat")
        if not isinstance(prompt, str):
            is_turn = chat is not False and tokenizer.has_chat_template
            return GivenPrompt(self.encode(prompt), is_turn=is_turn)
        self.refuse_endless(prompt, "prompt")
        if chat:
            self._check_template("use --no-chat (chat=False)", "chat")
        if not prompt.strip():
            raise InputError("the prompt is empty", "prompt")
        messages = ({"role": "user", "content": prompt},)
        if chat is not False and tokenizer.has_chat_template:
            return GivenPrompt(tokenizer.encode_chat(messages), prompt, messages, is_turn=True)
        return GivenPrompt(tokenizer.encode(prompt), prompt, messages if chat is None else ())

    def _check_template(self, advice: str, parameter: str) -> None:
        if not self.predictor.tokenizer.has_chat_template:
            name = self.predictor.info.name
            raise InputError(f"model {name!r} has no chat template; {advice}", parameter)

    def read_or_none(self, prompt: Prompt, chat: bool | None) -> GivenPrompt:
        """Return the tokenized prompt; if empty, an auto-regressive text's start."""
        if not isinstance(prompt, str):
            check_list(prompt, "prompt", "a text or token ids")
        if len(prompt):
            return self.read(prompt, chat)
        is_autoregressive = self.predictor.info.is_autoregressive
        ids = self.predictor.tokenizer.start_ids if is_autoregressive else as_ids([])
        return GivenPrompt(ids, "")

    def conversation(
        self,
        messages: Sequence[Message],
        tools: Sequence[FunctionTool] = (),
        template_kwargs: Fields | None = None,
    ) -> GivenPrompt:
        """Return a conversation up to the model's answer. tools: what it may call.
        template_kwargs: variables of the model's chat template, not of a judge's.
        """
        check_messages(messages)
        for message in messages:
            self.refuse_endless(message["content"], "messages")
            self.refuse_endless(str(message.get("tool_calls")), "messages")
        self.refuse_endless(str(tools), "tools")
        self._check_template("give the prompt as one text", "messages")
        kwargs = variables_of({} if template_kwargs is None else template_kwargs)
        tokenizer = self.predictor.tokenizer.with_template_kwargs(kwargs)
        ids = tokenizer.encode_chat(messages, tools)
        return GivenPrompt(ids, messages[-1]["content"], tuple(messages), tuple(tools), True)

    def gap(self, prefix: Prompt, suffix: Prompt) -> GivenPrompt:
        """Return the two sides of a gap. Raises InputError for an empty suffix."""
        ids = self.encode(prefix, "prefix")
        following = self.encode(suffix, "suffix")
        if len(following) == 0:
            raise InputError(
                "the suffix is empty, so there is no gap; generate what follows the prefix",
                "suffix",
            )
        self._refuse_masks(following)
        texts = [text if isinstance(text, str) else None for text in (prefix, suffix)]
        return GivenPrompt(ids, texts[0], suffix=following, suffix_text=texts[1])

    def encode(self, text: Prompt, parameter: str = "response") -> Ids:
        """Return token ids, int64 [N]. Raises InputError for ids that are no tokens."""
        if isinstance(text, str):
            self.refuse_endless(text, parameter)
            return self.predictor.tokenizer.encode(text)
        ids = as_ids(text)
        check_token_ids(ids, self.predictor.info.vocab_size)
        return ids

    def finished(self, prompt: GivenPrompt, response: Prompt, block_length: int) -> TokenSequence:
        """Return the text [P; R]. Raises InputError for an empty response or a mask."""
        response_ids = self.encode(response)
        if len(response_ids) == 0:
            raise InputError("the response is empty: it needs at least one token", "response")
        info = self.predictor.info
        facts = info.special, block_length, info.max_length, info.block_origin
        spell = self.predictor.tokenizer.spell
        sequence = TokenSequence.of(prompt.ids, response_ids, *facts, spell, info.canvas_length)
        self._refuse_masks(sequence.ids)
        self._refuse_longer(len(sequence), f"a text of {len(sequence)} tokens")
        return sequence

    def end_id(self, prompt: GivenPrompt) -> int | None:
        """Return what ends a response: a turn's end where it is one, else the padding."""
        special, tokenizer = self.predictor.info.special, self.predictor.tokenizer
        turn_end = tokenizer.encode(tokenizer.turn_end) if prompt.is_turn else as_ids([])
        ends = turn_end[special.is_end(turn_end)]
        return int(ends[0]) if len(ends) else special.eos_id

    def check_room(self, prompt: GivenPrompt, max_tokens: int) -> None:
        """Raise InputError for a prompt that is empty, too long, or holds a mask."""
        if len(prompt.ids) == 0 and not prompt.is_gap:
            raise InputError("the prompt is empty: it needs at least one token", "prompt")
        self._refuse_masks(prompt.ids)
        beside = f" and a suffix of {len(prompt.suffix)}" if prompt.is_gap else ""
        text = f"a prompt of {len(prompt.ids)} tokens{beside} with max_tokens={max_tokens}"
        self._refuse_longer(len(prompt.ids) + len(prompt.suffix) + max_tokens, text)

    def translation(self, prompt: GivenPrompt) -> Translation | None:
        judge = self.predictors.get("judge")
        return None if judge is None else Translation(prompt, self.predictor.tokenizer, judge)

    def _refuse_masks(self, ids: Ids) -> None:
        masks = np.flatnonzero(ids == self.predictor.info.special.mask_id)
        if len(masks):
            name = self.predictor.tokenizer.token_text(int(ids[masks[0]]))
            raise InputError(
                f"the text holds the mask token {name} at position {masks[0]}; it must be "
                "finished text"
            )

    def refuse_endless(self, text: str, parameter: str) -> None:
        """Raise TooLongError, before tokenizing, for a text that cannot fit."""
        limit = self.predictor.info.max_length
        if len(text) > CHARACTERS_PER_TOKEN * limit:
            raise TooLongError(
                f"a text of {len(text)} characters is longer than this model's limit of "
                f"{limit} tokens, at {CHARACTERS_PER_TOKEN} characters a token",
                parameter,
            )

    def _refuse_longer(self, num_tokens: int, text: str) -> None:
        if num_tokens > (limit := self.predictor.info.max_length):
            raise TooLongError(f"{text} is longer than the model's limit of {limit} tokens")
