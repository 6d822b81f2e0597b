"""Dream-v0-Instruct-7B and -Base, DiffuCoder, Dream-Coder, DreamOn, and any model of that
format.

Row i - 1 of the logits predicts token i; the engines hide that shift.
"""

from dise_adapters.families.backbones import qwen_settings
from dise_adapters.families.family import Family

DREAM = Family(
    about="Dream's format: Dream, DiffuCoder, Dream-Coder, DreamOn.",
    example="Dream-org/Dream-v0-Instruct-7B",
    architectures=("DreamModel",),
    model_types=("Dream",),
    model_class="Qwen2ForCausalLM",
    translate=qwen_settings,
    mask_tokens=("<|mask|>",),
    end_tokens=("<|endoftext|>", "<|im_end|>"),
    answers_for="next",
    tempered_confidence=True,
)
