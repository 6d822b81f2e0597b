"""Reads of texts in which some of their own tokens are hidden."""

from dise_core import Guidance, Ids, Read, TokenLogProbs, TokenSequence


def masked_read(
    text: TokenSequence, hidden: Ids, positions: Ids, guidance: Guidance | None = None
) -> Read:
    """Return the Read of the text's own tokens at positions, int64 [M], with masks at
    `hidden`; a block-causal model reads each block after the finished ones before it.
    """
    masked, noise = text.with_masks(hidden), text.noise_in(hidden)
    return Read(
        masked,
        positions,
        TokenLogProbs(text.ids[positions]),
        guidance=guidance,
        context_ids=text.ids,
        noise=noise,
        start=text.prompt_length,
    )
