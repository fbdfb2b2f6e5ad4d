"""Does with Instructor what its users do, against the daemon at argv[1]; prints what came as JSON."""

import json
import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel


class City(BaseModel):
    name: Literal["Paris", "Rome"]
    is_capital: bool


ASK = {
    "model": "smol",
    "messages": [{"role": "user", "content": "Describe Rome."}],
    "response_model": City,
    "max_retries": 0,
    "temperature": 0,
    "max_tokens": 60,
}
client = openai.OpenAI(base_url=sys.argv[1], api_key="none needed", max_retries=0)
results = {}
for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
    patched = instructor.from_openai(client, mode=mode)
    results[mode.value] = patched.chat.completions.create(**ASK).model_dump()
patched = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
plain = patched.chat.completions.create(**{**ASK, "response_model": None})
results["chat"] = plain.choices[0].message.content
partial = [one.model_dump() for one in patched.chat.completions.create_partial(**ASK)]
patched = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
asked = {key: value for key, value in ASK.items() if key not in ("messages", "max_tokens")}
city = patched.responses.create(**asked, input="Describe Rome.", max_output_tokens=60)
results["responses"] = city.model_dump()
results["partial"] = {"pieces": len(partial), "last": partial[-1]}
print(json.dumps(results))
