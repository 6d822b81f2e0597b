"""POST /v1/score and /v1/rank."""

from collections.abc import Sequence

from fastapi import FastAPI, Request, Response

from dise_app.server.choices import JsonObject, cost, usage
from dise_app.server.schemas.requests import RankRequest, ScoreRequest
from dise_app.server.service import Service, written_out
from dise_core import CompletionOutput, RequestOutput


def add_scores(app: FastAPI, service: Service) -> None:
    """Add the routes that score given texts."""

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> Response:
        params = service.scoring(body)
        prompts, texts = [body.prompt] * len(body.texts), body.texts
        work = service.llm.score(prompts, texts, params, chat=body.chat, finished=body.finished)
        results = await service.run(work, request)
        ranked = [(result.outputs[0], index) for index, result in enumerate(results)]
        return await written_out(lambda: _listed(ranked, results))

    @app.post("/v1/rank")
    async def rank(body: RankRequest, request: Request) -> Response:
        params = service.scoring(body)
        how = {"chat": body.chat, "finished": body.finished}
        work = service.llm.rank([body.prompt], [body.texts], params, **how)
        [answer] = await service.run(work, request)
        ranked = [(output, output.index) for output in answer.outputs]
        return await written_out(lambda: _listed(ranked, [answer]))

    def _listed(
        ranked: Sequence[tuple[CompletionOutput, int]], results: Sequence[RequestOutput]
    ) -> JsonObject:
        return {
            "object": "list",
            "model": service.model,
            "data": [output.to_dict() | {"index": index} for output, index in ranked],
            "usage": usage(results),
            "dise": cost(results),
        }
