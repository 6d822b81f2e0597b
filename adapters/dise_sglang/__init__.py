"""Scores of what SGLang's diffusion models write, from the forwards that SGLang runs anyway.

SGLang opens `register` in each of its processes. Nothing else imports SGLang or torch.
"""

from dise_sglang.plugin import register

__all__ = ["register"]
