"""Search: several particles of one response, of which the likelier go on."""

from dataclasses import replace
from itertools import count

import numpy as np

from dise_core.errors import InputError
from dise_core.noise import Noise
from dise_core.params.requests import SamplingParams
from dise_core.plans.plan import Plan, gather
from dise_core.scoring.memory import Memory
from dise_core.writing.filling import Draft


def check_search(params: SamplingParams) -> None:
    """Raise InputError for what a search cannot be combined with."""
    if params.search is None:
        return
    search = f"search {params.search!r}"
    if params.num_samples > 1:
        problem = f"{search} returns one of its particles; leave out n, best_of and stop_at"
        raise InputError(problem, "search")
    if params.temperature == 0:
        problem = f"{search} needs a temperature above 0, or all its particles would be the same"
        raise InputError(problem, "temperature")
    if params.length not in ("fixed", "until-end"):
        problem = f"{search} needs length 'fixed' or 'until-end', not {params.length!r}"
        raise InputError(f"{problem}: its particles share one canvas", "length")


def smc(draft: Draft) -> Plan[Draft]:
    """Return a plan of the likeliest of several particles, which begin as copies of the draft.

    They are written side by side, each with the noise of a sample of its own, and weigh the
    probability of their tokens, untempered, since the last resampling. After each block but the
    last, if the effective sample size is below `ess` of the particles, as many are drawn with
    replacement by their weights. Source: self-rewarding SMC (2602.01849).
    """
    first, params = draft.sampler, draft.sampler.params
    prompt, samplers = draft.ids[: draft.prompt_length], [first]
    for number in range(1, params.particles):
        noise = Noise.for_request(first.noise.seed, prompt, number)
        samplers.append(replace(first, noise=noise, sample=number, memory=Memory()))
    particles = [draft, *map(draft.by, samplers[1:])]
    before = np.zeros(len(particles))
    for block in count():
        yield from gather(*(particle.fill() for particle in particles if particle.blocks))
        now = np.array([particle.logprob for particle in particles])
        if not any(particle.blocks for particle in particles):
            break
        weights = np.exp(now - before - (now - before).max())
        if weights.sum() ** 2 < params.ess * len(particles) * (weights**2).sum():
            generator = first.noise.at_step(block).generator(purpose=2)
            drawn = generator.choice(len(now), len(now), p=weights / weights.sum())
            particles = [particles[k].by(own) for k, own in zip(drawn, samplers, strict=True)]
            before = now[drawn]
    return particles[int(now.argmax())]
