"""POST /v1/score, /v1/rank, /v1/decisions and /v1/systemone."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request

from dise_app.server import answers
from dise_app.server.decisions import DecisionRequest, SystemOneRequest, openai_body, systemone_body
from dise_app.server.schemas import RankRequest, ScoreRequest
from dise_app.server.service import Service
from dise_core import RequestOutput
from dise_core.records import Record


def add_scores(app: FastAPI, service: Service) -> None:
    """Add the routes that score given texts."""

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> Record:
        params = service.scoring(body)
        prompts = [body.prompt] * len(body.responses)
        work = service.llm.score(
            prompts, body.responses, params, chat=body.chat, finished=body.finished
        )
        results = await service.run(work, request)
        data = [
            answer.to_dict()["outputs"][0] | {"index": index}
            for index, answer in enumerate(results)
        ]
        return _listed(data, results)

    @app.post("/v1/rank")
    async def rank(body: RankRequest, request: Request) -> Record:
        params = service.scoring(body)
        work = service.llm.rank([body.prompt], [body.candidates], params, chat=body.chat)
        [answer] = await service.run(work, request)
        return _listed(answer.to_dict()["outputs"], [answer])

    def _listed(data: list[Record], results: Sequence[RequestOutput]) -> Record:
        return {
            "object": "list",
            "model": service.model,
            "data": data,
            "usage": answers.usage(results),
            "dise": answers.cost(results),
        }


def add_decisions(app: FastAPI, service: Service) -> None:
    """Add the routes that answer typed questions."""

    @app.post("/v1/decisions")
    async def decisions(body: DecisionRequest, request: Request) -> Record:
        service.check_model(body.model)
        work = service.llm.decide([body.given], body.questions, body.dise)
        [output] = await service.run(work, request)
        return openai_body(output) | {"model": service.model}

    @app.post("/v1/systemone")
    async def systemone(body: SystemOneRequest, request: Request) -> Record:
        service.check_model(body.model)
        work = service.llm.decide([body.given], body.asked, body.params)
        [output] = await service.run(work, request)
        return systemone_body(body, output) | {"model": service.model}
