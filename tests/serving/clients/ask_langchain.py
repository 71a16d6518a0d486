"""What LangChain's ChatOpenAI makes of a server, by both APIs."""

import json
import sys

import openai
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

url, question = sys.argv[1:]
chat = [
    HumanMessage("Why does white bread rise?"),
    AIMessage("Yeast makes gas."),
    HumanMessage("And why not with rye?"),
]
made = {}
for api in ("chat", "responses"):
    model = ChatOpenAI(
        model="typed_rag", base_url=url, api_key="none", max_retries=0, use_responses_api=api == "responses"
    )
    whole = model.invoke(question)
    chunks = list(model.stream(question, **({"stream_usage": True} if api == "chat" else {})))
    joined = sum(chunks[1:], chunks[0])
    tool = {"name": "f", "description": "", "parameters": {}}
    refused = []
    for bound in (model.bind_tools([tool], tool_choice="any"), model.bind(response_format={"type": "json_object"})):
        try:
            bound.invoke(question)
        except openai.BadRequestError as error:
            refused.append([error.code, error.param, str(error)])
    blocks = whole.content if isinstance(whole.content, list) else []
    made[api] = {
        "text": whole.text,
        "streamed": joined.text,
        "turns": model.invoke(chat).text,
        "tokens": [whole.usage_metadata["total_tokens"], joined.usage_metadata["total_tokens"]],
        "sources": [source["passage_id"] for block in blocks for source in block["annotations"]],
        "refused": refused,
    }
print(json.dumps(made))
