"""What LiteLLM makes of a server, by both APIs."""

import json
import sys

import litellm

url, question = sys.argv[1:]
litellm.suppress_debug_info = True
common = {"model": "openai/typed_rag", "api_base": url, "api_key": "none", "max_retries": 0}
said = {"messages": [{"role": "user", "content": question}], **common}
asked = {"input": question, **common}


def refusal(ask, **values):
    try:
        ask(**values)
    except litellm.BadRequestError as error:
        return [getattr(error, "code", None), getattr(error, "param", None), str(error)]


whole = litellm.completion(**said)
chunks = list(litellm.completion(**said, stream=True, stream_options={"include_usage": True}))
joined = litellm.stream_chunk_builder(chunks)
response = litellm.responses(**asked)
*_, done = events = list(litellm.responses(**asked, stream=True))
[text] = response.output[0].content
made = {
    "chat": {
        "text": whole.choices[0].message.content,
        "streamed": joined.choices[0].message.content,
        "tokens": [whole.usage.total_tokens, joined.usage.total_tokens],
        "sources": [a["url_citation"]["passage_id"] for a in whole.choices[0].message.annotations],
        "refused": [refusal(litellm.completion, **said, n=2)],
    },
    "responses": {
        "text": text.text,
        "streamed": "".join(event.delta for event in events if event.type == "response.output_text.delta"),
        "tokens": [response.usage.total_tokens, done.response.usage.total_tokens],
        "sources": [source.passage_id for source in text.annotations],
        "refused": [refusal(litellm.responses, **asked, instructions="Answer as a pirate.")],
    },
}
print(json.dumps(made))
