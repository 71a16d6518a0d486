"""Calls each path of a server by the client that was generated from its OpenAPI document."""

import json
import sys

from typedrag_client import AuthenticatedClient, Client
from typedrag_client.api.answers import answer, answer_batch, coverage, support
from typedrag_client.api.feedback import feedback
from typedrag_client.api.openai import chat_completions, model, models, responses
from typedrag_client.api.programs import program
from typedrag_client.api.status import alive, metrics, ready
from typedrag_client.models import (
    AnswerToJudge,
    Batch,
    ChatRequest,
    CitedAnswer,
    CitedPassage,
    FeedbackBody,
    Message,
    Question,
    QuestionType,
    Rating,
    ResponseRequest,
)

url, question, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)
whole = answer.sync_detailed(client=client, body=Question(question, question_type=QuestionType.REASON))
batch = answer_batch.sync(client=client, body=Batch([question, " "]))
chat = chat_completions.sync(client=client, body=ChatRequest([Message("user", question)]))
response = responses.sync(client=client, body=ResponseRequest(question))
cited = CitedAnswer(question, "Yeast makes gas.", [CitedPassage("1", "Yeast makes a gas.")])
judged = coverage.sync(client=client, body=AnswerToJudge(question, "Gas."))
rated = FeedbackBody(whole.headers["X-Request-ID"], rating=Rating.UP)
made = {
    "answer": whole.parsed.answer,
    "type": whole.parsed.question_type,
    "grounded": whole.parsed.grounded,
    "steps": [step.name for step in whole.parsed.steps],
    "batch": [[entry.answer and entry.answer.answer, entry.error and entry.error.code] for entry in batch.answers],
    "chat": chat.choices[0].message.content,
    "responses": response.output[0].content[0].text,
    "sources": [source.passage_id for source in response.output[0].content[0].annotations],
    "about": chat.typedrag.question_type,
    "covered": [
        one.covered for one in coverage.sync(client=client, body=AnswerToJudge(question, "Gas.")).sub_questions
    ],
    "support": [one.passage_id for one in support.sync(client=client, body=cited).support],
    "feedback": feedback.sync_detailed(client=client, body=rated).status_code,
    "models": [one.id for one in models.sync(client=client).data],
    "model": model.sync("typed_rag", client=client).id,
    "program": program.sync(client=client).name,
    "unknown": model.sync("gpt", client=client).error.code,
    "wrong": answer.sync(client=client, body=Question("x" * 5000)).error.code,
    "refused": models.sync(client=AuthenticatedClient(base_url=url, token="tr-wrong")).error.type_,
    "alive": alive.sync(client=Client(base_url=url)).additional_properties["status"],
    "ready": ready.sync(client=Client(base_url=url)).status,
    "metrics": "typedrag_questions_total" in metrics.sync(client=client),
}
print(json.dumps(made))
