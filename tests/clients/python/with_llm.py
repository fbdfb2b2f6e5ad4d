"""Does with llm's library what its command does, with the models that its folder names; prints what came as JSON."""

import json

import llm

SETTINGS = {"temperature": 0, "max_tokens": 60}
QUESTION = "What is the capital of France?"


def weather(place: str) -> str:
    """The weather in a place."""
    return f"sunny in {place}"


model = llm.get_model("local")
results = {
    "chat": model.prompt(QUESTION, stream=False, **SETTINGS).text(),
    "stream": list(model.prompt(QUESTION, stream=True, **SETTINGS)),
    "schema": json.loads(
        model.prompt("Invent a dog.", schema=llm.schema_dsl("name, age int"), stream=False, **SETTINGS).text()
    ),
    # A model of this size calls none unless it must, and there is no way to say so.
    "tools": model.chain("How is the weather in Rome?", tools=[weather], options=SETTINGS).text(),
    "embeddings": [
        list(one) for one in llm.get_embedding_model("3-small").embed_multi(["a cat", "a kitten", "revenue"])
    ],
}
print(json.dumps(results))
