"""The length controller that appends blocks until the answer ends."""

from dise_core import Denoiser, Generation, Ids, InputError, LengthController, Plan, SequenceScorer


class UntilEnd(LengthController):
    """Appends blocks of masks and denoises each against the finished ones, until one
    holds an end token or the response has max_tokens tokens. What stands behind its first
    end token is dropped.

    If max_tokens ends inside a block, that block is written as the model's published
    sampler writes it: whole and then cut, or alone. For block-causal attention alone:
    with full attention masks that do not exist yet would be missing from what the model
    sees.
    """

    def generate(self, prompt: Ids, denoiser: Denoiser, scorer: SequenceScorer) -> Plan[Generation]:
        if denoiser.info.block_length is None:
            raise InputError(
                f"until-end appends blocks, and {denoiser.info.name!r} has none of its own: its "
                "attention is not block-causal; use 'fixed', 'daedal' or 'dise-flexible'",
                "length",
            )
        sequence = yield from denoiser.once().write(prompt, denoiser.max_tokens, until_end=True)
        return Generation(sequence, (yield from scorer.evaluate(sequence)))
