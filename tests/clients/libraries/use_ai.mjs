// The Vercel AI SDK: a tool turn, the same streamed, and an object.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [api, url, name, degrees, question, text] = process.argv.slice(2);
const where = { baseURL: `${url}/v1`, apiKey: "dummy" };
const model = {
  chat: () =>
    createOpenAICompatible({ name: "local", supportsStructuredOutputs: true, ...where })(name),
  messages: () => createAnthropic(where)(name),
  responses: () => createOpenAI(where).responses(name),
}[api]();

const tools = {
  get_weather: tool({
    description: "Get the current weather in a city",
    inputSchema: z.object({ city: z.string() }),
    execute: async () => ({ temperature: Number(degrees) }),
  }),
};
const ask = { model, tools, prompt: question, stopWhen: stepCountIs(3), maxRetries: 0 };
const person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });

const told = async (done) => {
  const calls = (await done.steps).flatMap((step) => step.toolCalls);
  return { call: [calls[0].toolName, calls[0].input], answer: await done.text };
};
const whole = await told(await generateText(ask));
let failure;
const stream = streamText({ ...ask, onError: ({ error }) => (failure = error) });
let written = "";
for await (const part of stream.textStream) written += part;
if (failure) throw failure;
const streamed = await told(stream);
if (!written.endsWith(streamed.answer)) throw new Error(`streamed ${written}`);
const made = await generateText({
  model,
  prompt: text,
  output: Output.object({ schema: person }),
  maxRetries: 0,
});
console.log(JSON.stringify({ whole, streamed, object: made.output }));
