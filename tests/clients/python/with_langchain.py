"""Does with LangChain what its users do, against the daemon at argv[1]; prints what came as JSON."""

import json
import sys

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

URL = sys.argv[1]
ASK = [HumanMessage("What is the capital of France?")]


def chat(**more):
    return ChatOpenAI(
        model="smol", base_url=URL, api_key="none needed", temperature=0, max_tokens=40, max_retries=0, **more
    )


@tool
def weather(place: str) -> str:
    """The weather in a place."""
    return f"sunny in {place}"


class City(BaseModel):
    name: str
    people: int


def streamed(model):
    pieces = list(model.stream(ASK))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    return {"text": whole.text, "pieces": len(pieces), "usage": whole.usage_metadata}


def with_tools():
    asked = chat().bind_tools([weather], tool_choice="required").invoke(ASK)
    result = weather.invoke(asked.tool_calls[0])
    answer = chat().invoke([*ASK, asked, result])
    return {"call": asked.tool_calls[0]["name"], "result": result.content, "answer": answer.text}


def embedded(model, **more):
    embeddings = OpenAIEmbeddings(model=model, base_url=URL, api_key="none needed", max_retries=0, **more)
    return embeddings.embed_documents(["a cat", "a kitten", "revenue"])


results = {
    "chat": chat().invoke(ASK).text,
    "stream": streamed(chat(stream_usage=True)),
    "tools": with_tools(),
    "object": chat().with_structured_output(City).invoke("Describe a city.").model_dump(),
    "embeddings": embedded("vectors", check_embedding_ctx_length=False),
    # Unless it is told so, it sends numbers of tokens, of OpenAI's own models.
    "token_embeddings": embedded("numbers"),
    "responses_stream": streamed(chat(use_responses_api=True)),
}
print(json.dumps(results))
