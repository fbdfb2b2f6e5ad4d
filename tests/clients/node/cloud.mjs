// Talks to a model of a cloud provider through the daemon at argv[2], with OpenAI's library for JavaScript as it is by
// default, and prints what it saw as JSON.

import OpenAI from "openai";

const [, , baseURL] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none needed" });
const once = new OpenAI({ baseURL, apiKey: "none needed", maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];

const failure = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return { type: error.constructor.name, status: error.status ?? null, message: error.message };
  }
  return null;
};

const drain = async (stream) => {
  const chunks = [];
  for await (const chunk of await stream) chunks.push(chunk);
  return chunks;
};

const ask = (model, more = {}) => ({ model: `afar.${model}`, messages, ...more });

const seen = {
  chat: await client.chat.completions.create(ask("good")),
  stream: await drain(client.chat.completions.create(ask("good", { stream: true }))),
  usage: (await drain(client.chat.completions.create(ask("good", { stream: true, stream_options: { include_usage: true } })))).at(-1),
  tools: await client.chat.completions.stream(ask("calls", { tools })).finalChatCompletion(),
  models: (await client.models.list()).data.map((model) => model.id),
  busy: await failure(once.chat.completions.create(ask("busy"))),
  denied: await failure(client.chat.completions.create(ask("denied"))),
  cut: await failure(drain(once.chat.completions.create(ask("cut", { stream: true })))),
};
console.log(JSON.stringify(seen));
