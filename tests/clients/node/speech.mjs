// Speech with OpenAI's library for JavaScript: node speech.mjs BASE_URL. Prints what it saw as JSON.
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'not needed', maxRetries: 0 });
const input = 'One sentence is here. Another sentence is here. A third sentence is here.';
const seen = {};

const whole = await client.audio.speech.create({ model: 'speaker', voice: 'nova', input });
seen.type = whole.headers.get('content-type');
seen.begins = Buffer.from(await whole.arrayBuffer()).subarray(0, 3).toString('latin1');

const stream = await client.audio.speech.create({
  model: 'speaker',
  voice: 'nova',
  input,
  response_format: 'pcm',
  stream_format: 'audio',
});
seen.pieces = [];
for await (const piece of stream.body) seen.pieces.push(piece.length);

try {
  await client.audio.speech.create({ model: 'speaker', voice: 'nobody', input });
} catch (error) {
  seen.refused = { name: error.constructor.name, code: error.code, param: error.param };
}
console.log(JSON.stringify(seen));
