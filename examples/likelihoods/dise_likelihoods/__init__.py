"""More likelihoods for DiSE, as a distribution of its own."""

from dise_core import hookimpl


@hookimpl
def dise_scorers() -> dict[str, str]:
    """Return the scorers by name; the module of each is imported when it is asked for."""
    return {
        "any-order": "dise_likelihoods.any_order:AnyOrder",
        "duel": "dise_likelihoods.duel:Duel",
        "greedy-path": "dise_likelihoods.greedy_path:GreedyPath",
        "replay": "dise_likelihoods.replay:Replay",
    }
