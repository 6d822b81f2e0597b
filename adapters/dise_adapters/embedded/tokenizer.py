"""The embedded models' tokenizer without transformers, which takes long to import."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer

from dise_adapters.checkpoint.files import read_object
from dise_adapters.checkpoint.tokenizer import FastTokenizer


class ShippedFiles:
    """What FastTokenizer takes of transformers' tokenizer, from a folder of ours."""

    bos_token_id = None

    def __init__(self, folder: Path) -> None:
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat_template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        self.convert_tokens_to_ids = self.backend_tokenizer.token_to_id
        self.get_vocab = self.backend_tokenizer.get_vocab
        self.mask_token_id = self.convert_tokens_to_ids(
            str(read_object(folder / "tokenizer_config.json")["mask_token"])
        )

    @property
    def added_tokens_decoder(self) -> Mapping[int, object]:
        return self.backend_tokenizer.get_added_tokens_decoder()

    def get_added_vocab(self) -> dict[str, int]:
        return {str(token): i for i, token in self.added_tokens_decoder.items()}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: object) -> str:
        return self.backend_tokenizer.decode(ids, skip_special_tokens)

    def get_chat_template(self) -> str:
        return self.chat_template

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: object) -> str:
        return str(self._template.render(messages=messages, **options))

    @cached_property
    def _template(self) -> Any:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        return environment.from_string(self.chat_template)


def _refuse(problem: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(problem)


class ShippedTokenizer(FastTokenizer):
    """The tokenizer of an embedded model."""

    @classmethod
    def from_folder(cls, folder: Path, *_: object) -> Self:
        return cls(ShippedFiles(folder))
