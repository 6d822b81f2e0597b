"""Scores of what SGLang's diffusion models write, from the forwards that it runs anyway.
SGLang opens `plugin.register` in each of its processes; nothing else imports it, or torch.
"""
