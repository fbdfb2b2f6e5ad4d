// Pictures with OpenAI's library for JavaScript: node pictures.mjs BASE_URL PICTURE MASK. Prints what it saw as JSON.
import fs from 'node:fs';
import OpenAI from 'openai';

const [, , baseURL, picture, mask] = process.argv;
const client = new OpenAI({ baseURL, apiKey: 'not needed', maxRetries: 0 });
const model = 'Tiny';
const file = (path) => fs.createReadStream(path);
const seen = {};

seen.generate = await client.images.generate({ model, prompt: 'a red apple', n: 2, size: '32x32' });
seen.edit = await client.images.edit({ model, prompt: 'a tree', image: [file(picture), file(picture)], mask: file(mask) });
seen.single = await client.images.edit({ model, prompt: 'a tree', image: file(picture), n: 1, response_format: 'b64_json' });
seen.variation = await client.images.createVariation({ model, image: file(picture), size: '32x32' });

seen.events = [];
const stream = await client.images.generate({ model, prompt: 'a fox', stream: true, partial_images: 1, steps: 2 });
for await (const event of stream) seen.events.push([event.type, event.b64_json]);

try {
  await client.images.generate({ model, prompt: 'a red apple', response_format: 'url' });
} catch (error) {
  seen.refused = { name: error.constructor.name, code: error.code, param: error.param };
}
console.log(JSON.stringify(seen));
