// Does with the Vercel AI SDK what its users do, against the daemon at argv[2]; prints what came as JSON.
//
// `smol` is a small chat model, `vectors` an embedding model.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, streamText, tool } from "ai";

const [, , baseURL] = process.argv;
const compatible = createOpenAICompatible({ name: "lemonade", baseURL, includeUsage: true, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey: "none needed" });
const prompt = "What is the capital of France?";
const settings = { temperature: 0, maxOutputTokens: 40, maxRetries: 0 };
const place = jsonSchema({
  type: "object",
  properties: { place: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["place"],
  additionalProperties: false,
});

async function streamed(model) {
  const errors = [];
  const result = streamText({ model, prompt, ...settings, onError: ({ error }) => errors.push(String(error)) });
  const kinds = new Set();
  let text = "";
  for await (const part of result.fullStream) {
    kinds.add(part.type);
    if (part.type === "text-delta") text += part.text;
  }
  return { text, kinds: [...kinds], finish: await result.finishReason, usage: await result.usage, errors };
}

// A call that the model has to make, its execution, and the answer after it.
async function withTools(model) {
  const calls = [];
  const weather = tool({
    description: "The weather in a place",
    inputSchema: place,
    execute: async (input) => {
      calls.push(input);
      return `sunny in ${input.place}`;
    },
  });
  const result = await generateText({
    model,
    prompt: "How is the weather in Rome?",
    ...settings,
    tools: { weather },
    stopWhen: ({ steps }) => steps.length === 2,
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
  });
  return { calls, text: result.text, finishes: result.steps.map((step) => step.finishReason) };
}

async function object(model) {
  const { output } = await generateText({ model, prompt: "Name a city.", ...settings, output: Output.object({ schema: place }) });
  return output;
}

async function failure(run) {
  try {
    await run();
    return null;
  } catch (error) {
    return { status: error.statusCode, message: error.message };
  }
}

const parts = {
  chat: async () => (await generateText({ model: compatible("smol"), prompt, ...settings })).text,
  stream: () => streamed(compatible("smol")),
  tools: () => withTools(compatible("smol")),
  object: () => object(compatible("smol")),
  embeddings: async () =>
    (await embedMany({ model: compatible.embeddingModel("vectors"), values: ["a cat", "a kitten", "revenue"] })).embeddings,
  responsesStream: () => streamed(openai.responses("smol")),
  responsesTools: () => withTools(openai.responses("smol")),
  responsesObject: () => object(openai.responses("smol")),
  openaiChatStream: () => streamed(openai.chat("smol")),
  openaiEmbeddings: async () =>
    (await embedMany({ model: openai.embeddingModel("vectors"), values: ["a cat", "a kitten", "revenue"] })).embeddings,
  missing: () => failure(() => generateText({ model: compatible("none"), prompt, ...settings })),
};

const results = {};
for (const [name, part] of Object.entries(parts)) {
  try {
    results[name] = await part();
  } catch (error) {
    results[name] = { failed: String(error.stack ?? error), body: error.responseBody };
  }
}
console.log(JSON.stringify(results));
