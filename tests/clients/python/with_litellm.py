"""Does with LiteLLM what its users do, against the daemon at argv[1]; prints what came as JSON."""

import json
import sys

import litellm

COMMON = {"api_base": sys.argv[1], "api_key": "none needed", "num_retries": 0}
ASK = {"model": "openai/smol", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
SETTINGS = {**COMMON, "temperature": 0, "max_tokens": 40}
SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["place"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
FORM = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}


def streamed():
    chunks = list(litellm.completion(**ASK, **SETTINGS, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks)
    return {"text": whole.choices[0].message.content, "tokens": whole.usage.completion_tokens, "pieces": len(chunks)}


def responses_stream():
    events = litellm.responses(
        model="openai/smol", input="Say hello.", stream=True, temperature=0, max_output_tokens=12, **COMMON
    )
    return [str(getattr(event.type, "value", event.type)) for event in events]


def failure():
    try:
        litellm.completion(**{**ASK, "model": "openai/none"}, **SETTINGS)
    except litellm.exceptions.NotFoundError as error:
        return error.status_code
    return None


call = litellm.completion(**ASK, **SETTINGS, tools=[TOOL], tool_choice="required").choices[0].message.tool_calls[0]
vectors = litellm.embedding(model="openai/vectors", input=["a cat", "a kitten", "revenue"], **COMMON)
results = {
    "chat": litellm.completion(**ASK, **SETTINGS).choices[0].message.content,
    "stream": streamed(),
    "tools": {"call": call.function.name, "arguments": json.loads(call.function.arguments)},
    "object": json.loads(litellm.completion(**ASK, **SETTINGS, response_format=FORM).choices[0].message.content),
    "embeddings": [one["embedding"] for one in vectors.data],
    "responses_stream": responses_stream(),
    "missing": failure(),
}
print(json.dumps(results))
