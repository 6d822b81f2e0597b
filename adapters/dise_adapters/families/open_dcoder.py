"""Open-dCoder: Qwen2.5-Coder with full attention. Its config.json is that of an
auto-regressive Qwen2: only its name tells it. Row i - 1 of the logits predicts token i.
"""

import re

from dise_adapters.families.backbones import qwen_settings
from dise_adapters.families.family import Family
from dise_adapters.families.names import checkpoint_names
from dise_core.records import JsonFields

NAME = re.compile(r"open[-_]d(coder|llm)", re.IGNORECASE)


def is_named(fields: JsonFields, model: str) -> bool:
    """Return whether it is a Qwen2 that is, or was, called an Open-dCoder."""
    names = (*checkpoint_names({}, model), str(fields.get("_name_or_path") or ""))
    return fields.get("model_type") == "qwen2" and any(map(NAME.search, names))


OPEN_DCODER = Family(
    about="Open-dCoder, on Qwen2, by its name.",
    example="fredzzp/open-dcoder-0.5B",
    model_class="Qwen2ForCausalLM",
    translate=qwen_settings,
    mask_tokens=("[MASK]",),
    end_tokens=("<|endoftext|>", "<|im_end|>"),
    answers_for="next",
    recognizes=is_named,
)
