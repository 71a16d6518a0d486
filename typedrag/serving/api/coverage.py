"""`/v1/coverage`: the sub-questions that an answer covers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from typedrag.serving.api.answers import unless_client_leaves
from typedrag.serving.coverage import judged_coverage
from typedrag.serving.service import Service

router = APIRouter(prefix="/v1", tags=["answers"])

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class AnswerToJudge(BaseModel):
    """A question and an answer to it."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[_Text, Field(max_length=4000, examples=["Why does homemade bread turn out dense and heavy?"])]
    answer: Annotated[_Text, Field(max_length=20_000)]
    program: str = Field(default="", description="A name of GET /v1/models, whose LM is asked; the first by default.")


@router.post("/coverage")
async def coverage(body: AnswerToJudge, request: Request) -> Response:
    """Judge which sub-questions an answer covers; the LM writes and types them, which costs as much as an answer."""
    service: Service = request.app.state.service
    return JSONResponse(await unless_client_leaves(request, _judged(service, body)))


async def _judged(service: Service, body: AnswerToJudge) -> dict[str, Any]:
    served = service.program(body.program)
    source = partial(judged_coverage, served.program, body.question, body.answer)
    identity = ("coverage", body.question, body.answer)
    [judged] = [event.to_dict() async for event in service.follow(served, identity, source)]
    return {"sub_questions": judged["sub_questions"], "usage": judged["usage"]}
