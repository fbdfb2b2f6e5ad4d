// Talks to the daemon at argv[2] as OpenAI's library for JavaScript does by default, and prints what it saw as JSON.

import OpenAI from "openai";

const [, , baseURL] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none needed" });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const call = { name: "weather", arguments: '{"place":"Paris"}' };
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];

const parts = {
  async chat() {
    return await client.chat.completions.create({ model: "a", messages });
  },

  async stream() {
    const chunks = [];
    const stream = await client.chat.completions.create({
      model: "a",
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
  },

  // The library puts the pieces together itself, and throws if they do not fit.
  async tools() {
    const runner = client.chat.completions.stream({ model: "a", messages, tools, fake: { text: "", tool_call: call } });
    return await runner.finalChatCompletion();
  },

  async abort() {
    const stream = await client.chat.completions.create({
      model: "a",
      messages,
      stream: true,
      fake: { tokens: 2000, interval: 0.02 },
    });
    let seen = 0;
    for await (const _ of stream) if (++seen === 3) break;
    // While this process lives, only the abort can have ended the engine's work.
    for (let look = 0; look < 30; look++) {
      const health = await (await fetch(`${baseURL}/health`)).json();
      if (!health.all_models_loaded[0].is_busy) return { seen, idle: true };
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return { seen, idle: false };
  },

  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return ids;
  },

  async errors() {
    const seen = {};
    const attempts = {
      missing: { model: "none", messages },
      wrong: { model: "a", messages, temperature: "hot" },
      long: { model: "a", messages, fake: { err400: true } },
      broken: { model: "a", messages, stream: true, fake: { tokens: 9, crash_after: 4 } },
    };
    for (const [name, body] of Object.entries(attempts)) {
      try {
        const answer = await client.chat.completions.create(body);
        if (body.stream) for await (const _ of answer);
        seen[name] = null;
      } catch (error) {
        seen[name] = { type: error.constructor.name, status: error.status, code: error.code, message: error.message };
      }
    }
    return seen;
  },
};

const results = {};
for (const [name, part] of Object.entries(parts)) results[name] = await part();
console.log(JSON.stringify(results));
