// Does with OpenAI's library for JavaScript what its users do, against the daemon at argv[2]; prints what came as JSON.
//
// `smol` is a small chat model, `vectors` an embedding model. test_openai_real.py does the same in Python.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [, , baseURL] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none needed", maxRetries: 0 });
const question = { role: "user", content: "What is the capital of France? Answer in one sentence." };
const ask = { model: "smol", messages: [question], temperature: 0, max_tokens: 60 };
const Place = z.object({ place: z.enum(["Paris", "Rome"]) });
const parameters = {
  type: "object",
  properties: { place: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["place"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", description: "The weather in a place", parameters } }];

const parts = {
  async chat() {
    return (await client.chat.completions.create(ask)).choices[0].message.content;
  },

  async stream() {
    const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    const text = chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");
    return { text, pieces: chunks.length, tokens: chunks.at(-1).usage.completion_tokens };
  },

  async tools() {
    const asked = await client.chat.completions.create({ ...ask, tools, tool_choice: "required" });
    const { message, finish_reason } = asked.choices[0];
    const [call] = message.tool_calls;
    const result = { role: "tool", tool_call_id: call.id, content: "sunny" };
    const answer = await client.chat.completions.create({ ...ask, tools, messages: [question, message, result] });
    return {
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments),
      finish: finish_reason,
      answer: answer.choices[0].message.content,
    };
  },

  // The library puts the pieces together itself, and throws if they do not fit.
  async streamedTool() {
    const runner = client.chat.completions.stream({ ...ask, tools, tool_choice: "required" });
    const [call] = (await runner.finalChatCompletion()).choices[0].message.tool_calls;
    return { name: call.function.name, arguments: JSON.parse(call.function.arguments) };
  },

  async schema() {
    const answer = await client.chat.completions.parse({ ...ask, response_format: zodResponseFormat(Place, "place") });
    return answer.choices[0].message.parsed;
  },

  // It asks for base64 unless it is told otherwise.
  async embeddings() {
    const answer = await client.embeddings.create({ model: "vectors", input: ["a cat", "a kitten", "revenue"] });
    return answer.data.map((one) => one.embedding);
  },

  async responses() {
    const stream = client.responses.stream({
      model: "smol",
      input: question.content,
      temperature: 0,
      max_output_tokens: 60,
    });
    let text = "";
    const kinds = [];
    for await (const event of stream) {
      kinds.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    return { text, kinds, last: (await stream.finalResponse()).output_text };
  },
};

const results = {};
for (const [name, part] of Object.entries(parts)) results[name] = await part();
console.log(JSON.stringify(results));
