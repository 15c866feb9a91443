// What client_npm.py runs: a line "ok NAME" or "not NAME # why" for each case.
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, streamText } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.argv[2];
const model = "smollm2";
const ask = "Name the capital city of France.";
const messages = [{ role: "user", content: ask }];
const cold = { temperature: 0, max_tokens: 60 };

async function check(name, run) {
  try {
    const wrong = await run();
    console.log(wrong ? `not ${name} # ${JSON.stringify(wrong)}` : `ok ${name}`);
  } catch (e) {
    console.log(`not ${name} # ${String(e).replaceAll("\n", " ")}`);
  }
}

const failure = async (call) => {
  try {
    await call();
  } catch (e) {
    return e;
  }
};

const has = (text) => (text.includes("Paris") ? null : text);
const cancelled = async () =>
  Number((await (await fetch(url + "/metrics")).text()).match(/cancelled_total (\d+)/)[1]);
let said;

const openai = new OpenAI({ baseURL: url + "/v1", apiKey: "any", maxRetries: 0 });
await check("openai: a chat", async () => {
  const r = await openai.chat.completions.create({ model, messages, ...cold });
  said = r.choices[0].message.content;
  return has(said);
});
await check("openai: a stream says the same", async () => {
  let text = "";
  const s = await openai.chat.completions.create({ model, messages, ...cold, stream: true });
  for await (const c of s) text += c.choices[0]?.delta?.content ?? "";
  return text === said ? null : text;
});
await check("openai: a schema of zod", async () => {
  const City = z.object({ name: z.string(), country: z.enum(["France", "Spain"]) });
  const r = await openai.chat.completions.parse({
    model, messages, temperature: 0, max_tokens: 200,
    response_format: zodResponseFormat(City, "city"),
  });
  return r.choices[0].message.parsed?.name ? null : r;
});
await check("openai: the Responses API, streamed", async () => {
  const s = openai.responses.stream({ model, input: ask, temperature: 0, max_output_tokens: 60 });
  const r = await s.finalResponse();
  return r.output_text === said ? null : r;
});
await check("openai: embeddings", async () => {
  const r = await openai.embeddings.create({ model, input: ["tea", "cake"] });
  return r.data.length === 2 && r.data[0].embedding.length === 576 ? null : r.data.length;
});
await check("openai: models", async () => {
  const list = [];
  for await (const m of openai.models.list()) list.push(m.id);
  return list.join() === model ? null : list;
});
await check("openai: typed errors", async () => {
  const e = await failure(() => openai.chat.completions.create({ model: "gpt-5", messages }));
  return e instanceof OpenAI.NotFoundError && e.code === "model_not_found" ? null : String(e);
});
await check("openai: leaving a stream cancels it", async () => {
  const before = await cancelled();
  const s = await openai.chat.completions.create({
    model, messages, stream: true, max_tokens: 4000, ignore_eos: true,
  });
  for await (const _ of s) break;
  while ((await cancelled()) === before) await new Promise((go) => setTimeout(go, 20));
  return null;
});

const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 0 });
const usual = { model, messages, ...cold };
await check("anthropic: a message says the same", async () => {
  const r = await anthropic.messages.create(usual);
  return r.content[0].text === said && r.stop_reason === "end_turn" ? null : r;
});
await check("anthropic: a stream says the same", async () => {
  const r = await anthropic.messages.stream(usual).finalMessage();
  return r.content[0].text === said && r.usage.output_tokens > 0 ? null : r;
});
await check("anthropic: tokens are counted", async () => {
  const r = await anthropic.messages.countTokens({ model, messages });
  return r.input_tokens > 5 ? null : r;
});
await check("anthropic: typed errors", async () => {
  const e = await failure(() => anthropic.messages.create({ ...usual, model: "claude" }));
  return e instanceof Anthropic.NotFoundError ? null : String(e);
});

const ollama = new Ollama({ host: url });
const options = { temperature: 0, num_predict: 60 };
await check("ollama: a chat says the same", async () => {
  const r = await ollama.chat({ model, messages, options });
  return r.message.content === said && r.done_reason === "stop" ? null : r;
});
await check("ollama: a stream says the same", async () => {
  let text = "";
  const s = await ollama.chat({ model, messages, options, stream: true });
  for await (const part of s) text += part.message.content;
  return text === said ? null : text;
});
await check("ollama: embeddings and models", async () => {
  const r = await ollama.embed({ model, input: ["tea", "cake"] });
  const list = await ollama.list();
  return r.embeddings.length === 2 && list.models[0].name === model ? null : list;
});
await check("ollama: errors", async () => {
  const e = await failure(() => ollama.chat({ model: "other", messages }));
  return e?.status_code === 404 ? null : String(e);
});

const provider = createOpenAICompatible({ name: "ruvllm", baseURL: url + "/v1" });
const settings = { model: provider.chatModel(model), prompt: ask, temperature: 0 };
await check("ai: a text says the same", async () => {
  const r = await generateText({ ...settings, maxOutputTokens: 60 });
  return r.text === said ? null : r.text;
});
await check("ai: a stream says the same", async () => {
  let text = "";
  for await (const piece of streamText({ ...settings, maxOutputTokens: 60 }).textStream)
    text += piece;
  return text === said ? null : text;
});
await check("ai: an embedding", async () => {
  const r = await embed({ model: provider.embeddingModel(model), value: "tea" });
  return r.embedding.length === 576 ? null : r.embedding.length;
});
