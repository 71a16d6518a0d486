"""What LlamaIndex's OpenAILike makes of a server."""

import asyncio
import json
import sys

import openai
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

url, question = sys.argv[1:]
model = OpenAILike(model="typed_rag", api_base=url, api_key="none", is_chat_model=True, max_retries=0)
chat = [ChatMessage("Why does white bread rise?"), ChatMessage("Yeast makes gas.", role="assistant")]
whole = model.complete(question)
refused = []
for values in ({"n": 2}, {"response_format": {"type": "json_object"}}):
    try:
        model.complete(question, **values)
    except openai.BadRequestError as error:
        refused.append([error.code, error.param, str(error)])
made = {
    "text": whole.text,
    "streamed": "".join(part.delta or "" for part in model.stream_complete(question)),
    "awaited": asyncio.run(model.acomplete(question)).text,
    "turns": model.chat([*chat, ChatMessage("And why not with rye?")]).message.content,
    "tokens": [whole.additional_kwargs["total_tokens"]],
    "sources": [a.url_citation.passage_id for a in whole.raw.choices[0].message.annotations],
    "refused": refused,
}
print(json.dumps({"chat": made}))
