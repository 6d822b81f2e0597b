"""The part of a text that each of its tokens spells, whatever the tokenizer."""

from dise_core.arrays import Ids
from dise_core.models.tokenizer import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""What the bytes of a part of a character decode to."""

MAX_WAITING = 16
"""Tokens that may wait for the next ones until their text is part of the whole."""


def pieces(tokenizer: Tokenizer, ids: Ids) -> list[str]:
    """Return the piece of the text that each token adds to it; joined they are
    `decode(ids)`.

    ids: int64 [N]. A character that several tokens spell together belongs to the last of
    them, and the others' pieces are empty, as those of special tokens are.
    """
    text, tokens = tokenizer.decode(ids), ids.tolist()
    if not tokens:
        return []
    alone = [tokenizer.token_text(token_id) for token_id in tokens]
    alone[0] = tokenizer.decode(ids[:1])  # without the space that some tokenizers drop
    texts: list[str] = []
    start = end = at = 0  # tokens[start:end] is the context in which those after it are read
    for index, single in enumerate(alone):
        if end == index and single and BROKEN not in single and text.startswith(single, at):
            piece = single
        else:
            context = tokenizer.decode(ids[start:end]) if end > start else ""
            piece = _added(context, tokenizer.decode(ids[start : index + 1]), text, at)
        if index == len(tokens) - 1:
            piece = text[at:]
        texts.append(piece)
        at += len(piece)
        if piece:
            start, end = end, index + 1
        elif index - end >= MAX_WAITING:
            start = end = index + 1
    return texts


def _added(before: str, after: str, text: str, at: int) -> str:
    added = after.removeprefix(before)
    is_next = after.startswith(before) and text.startswith(added, at)
    return added if is_next else ""
