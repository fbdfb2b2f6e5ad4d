// A collection with OpenAI's library for JavaScript: node omni.mjs BASE_URL FAKE. Prints what it saw as JSON.
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'not needed', maxRetries: 0 });
const ask = { model: 'Studio', messages: [{ role: 'user', content: 'an apple' }], fake: JSON.parse(process.argv[3]) };
const seen = {};

seen.whole = await client.chat.completions.create(ask);

const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
seen.largest = 0;
stream.on('content', (delta) => (seen.largest = Math.max(seen.largest, delta.length)));
seen.streamed = await stream.finalChatCompletion();
console.log(JSON.stringify(seen));
