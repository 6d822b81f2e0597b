"""What the files of a tokenizer may say: read, and bounded, before the tokenizers library is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from dise_adapters.checkpoint.files import check_size, check_sizes, one_line, read_object, validated
from dise_core.errors import CheckpointError, DiseError
from dise_core.records import Fields, Record

MOST_GROWTH = 256
"""How many times as long a normalizer may make a text; those of published models stay below 8."""

MOST_STEPS = 100

TokenId = Annotated[int, Field(ge=0, lt=2**22)]
Affix = Annotated[str, StringConstraints(max_length=64)]


class Part(BaseModel):
    """A part of a file; what is not named here is for the tokenizers library to judge."""

    model_config = ConfigDict(strict=True, frozen=True)


class Algorithm(Part):
    """How words become tokens, as far as it can cost more than the words are long."""

    max_input_chars_per_word: int = Field(default=100, ge=0, le=1000)
    continuing_subword_prefix: Affix | None = None
    end_of_word_suffix: Affix | None = None


class AddedToken(Part):
    """A token beside the vocabulary."""

    id: TokenId
    content: str = Field(max_length=10_000)


class TokenizerFile(Part):
    """tokenizer.json."""

    model: Algorithm
    added_tokens: list[AddedToken] = Field(default_factory=list)
    normalizer: Record | None = None
    decoder: Record | None = None


class NamedTemplate(Part):
    """One of several chat templates."""

    name: str
    template: str


class Settings(Part):
    """tokenizer_config.json."""

    tokenizer_class: str | None = None
    chat_template: str | list[NamedTemplate] | None = None
    added_tokens_decoder: dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], object] | None = None


def check_tokenizer(folder: Path) -> None:
    """Raise CheckpointError, naming file and field, for files that cannot be those of a tokenizer,
    or would make texts many times as long.
    """
    check_sizes(folder)
    settings = folder / "tokenizer_config.json"
    if settings.exists():
        validated(Settings, read_object(settings), settings)
    path = folder / "tokenizer.json"
    if not path.exists():
        return
    check_size(path)
    try:
        file = TokenizerFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        said = f"{name:.80}={problem['input']!r:.80}: {problem['msg']}"
        raise CheckpointError(f"cannot read {path}: {one_line(said)}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {one_line(error)}") from error
    for name, step in (("normalizer", file.normalizer), ("decoder", file.decoder)):
        with refused(f"cannot read {path}: {name}"):
            times = growth(step or {})
        if times > MOST_GROWTH:
            raise CheckpointError(
                f"cannot read {path}: its {name} may make a text {times:.3g} times as long, and at "
                f"most {MOST_GROWTH} times is allowed"
            )


def growth(step: Fields) -> float:
    """Return how many times as long a normalizer, or a decoder, may make a text, in characters."""
    kind, times = step.get("type"), 1.0
    if kind == "Sequence":
        steps = step.get("normalizers") or step.get("decoders") or []
        if len(steps) > MOST_STEPS:
            raise ValueError(f"it has {len(steps)} steps, and at most {MOST_STEPS} may be")
        for each in steps:
            times *= growth(each)
    elif kind == "Replace":
        times = _replacement(step["pattern"], str(step["content"]))
    elif kind == "Prepend":
        times += len(str(step["prepend"]))
    elif kind in ("ByteLevel", "WordPiece", "BPEDecoder"):
        times = 2.0
    elif kind == "Precompiled":
        times = _longest(str(step.get("precompiled_charsmap") or ""))
    return times


def _replacement(pattern: Fields, content: str) -> float:
    """Return the growth where a text, or whatever an expression matches, becomes that content."""
    plain = pattern.get("String")
    if isinstance(plain, str) and plain:
        return max(1.0, len(content) / len(plain))
    return 1.0 + len(content)  # an expression may match between any two characters


def _longest(charsmap: str) -> float:
    """Return the length of the longest text that a table of sentencepiece puts for a character."""
    try:
        table = base64.b64decode(charsmap)
    except binascii.Error as error:
        raise ValueError(f"precompiled_charsmap is no base64: {error}") from error
    start = 4 + int.from_bytes(table[:4], "little")
    # In bytes of texts that hold three for most of their characters.
    return max(1.0, max(map(len, table[start:].split(b"\0"))) / 8)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn whatever is raised inside into a CheckpointError of one line, a panic of Rust too, which
    is no Exception.
    """
    try:
        yield
    except (DiseError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise CheckpointError(f"{what}: {one_line(error)}") from error
