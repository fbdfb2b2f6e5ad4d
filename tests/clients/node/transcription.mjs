// Transcribes the file at argv[3] with OpenAI's library for JavaScript, against the daemon at argv[2]; prints what came as
// JSON. `ears` is a small Whisper. test_openai_transcription.py does the same in Python.

import { createReadStream } from "node:fs";
import OpenAI from "openai";

const [, , baseURL, path] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none needed", maxRetries: 0 });
const ask = (more) => client.audio.transcriptions.create({ model: "ears", file: createReadStream(path), ...more });

const verbose = await ask({ response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
const events = [];
for await (const event of await ask({ stream: true })) events.push(event);
const failure = await ask({ language: "klingon" }).catch((error) => error);

console.log(
  JSON.stringify({
    json: (await ask({})).text,
    text: await ask({ response_format: "text" }),
    srt: await ask({ response_format: "srt" }),
    words: verbose.words.map((word) => word.word),
    segment: verbose.segments[0],
    language: verbose.language,
    deltas: events.filter((event) => event.type === "transcript.text.delta").map((event) => event.delta),
    done: events.at(-1).text,
    failure: { status: failure.status, code: failure.code, param: failure.param },
  }),
);
