// What client_npm.py runs: a line "ok NAME" or "not NAME # why" for each case.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, generateText, Output, streamText, tool } from "ai";
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
// A stream that is left counts as cancelled.
const leaves = async (begin) => {
  const before = await cancelled();
  await begin();
  const until = Date.now() + 60000;
  while ((await cancelled()) === before && Date.now() < until)
    await new Promise((go) => setTimeout(go, 20));
  return (await cancelled()) === before + 1 ? null : "it went on";
};
const City = z.object({ name: z.string(), country: z.enum(["France", "Spain"]) });
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const description = "The weather in a city.";
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 30 } },
  required: ["city"],
};
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
await check("openai: leaving a stream cancels it", () => leaves(async () => {
  const s = await openai.chat.completions.create({
    model, messages, stream: true, max_tokens: 4000, ignore_eos: true,
  });
  for await (const _ of s) break;
}));
await check("openai: a tool is called, streamed, and its result is read", async () => {
  const asked = {
    model, messages: weather, temperature: 0, max_tokens: 200, tool_choice: "required",
    tools: [{ type: "function", function: { name: "get_weather", description, parameters } }],
  };
  const r = (await openai.chat.completions.create(asked)).choices[0];
  const call = r.message.tool_calls?.[0];
  if (r.finish_reason !== "tool_calls" || !JSON.parse(call.function.arguments).city) return r;
  const s = await openai.chat.completions.stream(asked).finalChatCompletion();
  const streamed = s.choices[0].message.tool_calls[0];
  if (streamed.function.arguments !== call.function.arguments) return streamed;
  const result = { role: "tool", tool_call_id: call.id, content: "It rains." };
  const end = await openai.chat.completions.create({
    ...asked, tool_choice: "none", messages: [...weather, r.message, result],
  });
  return end.choices[0].message.content ? null : end;
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
await check("anthropic: models", async () => {
  const list = [];
  for await (const m of anthropic.models.list()) list.push(m.display_name);
  return list.join() === model && (await anthropic.models.retrieve(model)).id === model
    ? null : list;
});
await check("anthropic: a tool is called, streamed, and its result is read", async () => {
  const asked = {
    ...usual, messages: weather, max_tokens: 200, tool_choice: { type: "any" },
    tools: [{ name: "get_weather", description, input_schema: parameters }],
  };
  const r = await anthropic.messages.create(asked);
  const use = r.content.find((b) => b.type === "tool_use");
  if (r.stop_reason !== "tool_use" || typeof use.input.city !== "string") return r;
  const s = await anthropic.messages.stream(asked).finalMessage();
  if (s.content.find((b) => b.type === "tool_use").input.city !== use.input.city) return s;
  const result = { type: "tool_result", tool_use_id: use.id, content: "It rains." };
  const end = await anthropic.messages.create({
    ...asked, tool_choice: { type: "none" },
    messages: [...weather, { role: "assistant", content: r.content },
      { role: "user", content: [result] }],
  });
  return end.content[0]?.text ? null : end;
});
await check("anthropic: a schema of zod", async () => {
  const r = await anthropic.messages.parse({
    ...usual, max_tokens: 200, output_config: { format: zodOutputFormat(City) },
  });
  return r.parsed_output?.name ? null : r;
});
await check("anthropic: leaving a stream cancels it", () => leaves(async () => {
  const s = await anthropic.messages.create({
    ...usual, stream: true, max_tokens: 4000, ignore_eos: true,
  });
  for await (const _ of s) break;
}));

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
await check("ollama: a schema is held", async () => {
  const format = z.toJSONSchema(City);
  const r = await ollama.chat({
    model, messages, format, options: { temperature: 0, num_predict: 200 },
  });
  return City.parse(JSON.parse(r.message.content)).name ? null : r;
});
await check("ollama: a tool may be called, and its result is read", async () => {
  const tools = [{ type: "function", function: { name: "get_weather", description, parameters } }];
  const r = await ollama.chat({ model, messages: weather, tools, options });
  const calls = r.message.tool_calls ?? []; // nothing can demand one
  if (!calls.every((x) => x.function.name === "get_weather" && x.function.arguments.city)) return r;
  const result = { role: "tool", content: "It rains.", tool_name: "get_weather" };
  const end = await ollama.chat({
    model, messages: [...weather, r.message, result], tools, options: { num_predict: 12 },
  });
  return end.done ? null : end;
});
await check("ollama: aborting a stream cancels it", () => leaves(async () => {
  const s = await ollama.chat({
    model, messages, stream: true, options: { num_predict: -1, ignore_eos: true },
  });
  await failure(async () => {
    for await (const _ of s) s.abort();
  });
}));

const provider = createOpenAICompatible({
  name: "ruvllm", baseURL: url + "/v1", supportsStructuredOutputs: true,
});
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
await check("ai: an object of zod's schema", async () => {
  const r = await generateText({
    ...settings, maxOutputTokens: 200, output: Output.object({ schema: City }),
  });
  return City.parse(r.output).name ? null : r.output;
});
await check("ai: a tool is called", async () => {
  const inputSchema = z.object({ city: z.string().max(30) });
  const execute = async () => "It rains.";
  const asked = {
    ...settings, prompt: weather[0].content, maxOutputTokens: 200, toolChoice: "required",
    tools: { get_weather: tool({ description, inputSchema, execute }) },
  };
  const r = await generateText(asked);
  const call = r.toolCalls[0];
  if (call?.toolName !== "get_weather") return r.toolCalls;
  if (r.toolResults[0].output !== "It rains.") return r.toolResults;
  const streamed = (await streamText(asked).toolCalls)[0];
  return streamed.input.city === call.input.city ? null : streamed;
});
await check("ai: typed errors", async () => {
  const e = await failure(() =>
    generateText({ ...settings, model: provider.chatModel("gpt-5"), maxRetries: 0 }));
  return APICallError.isInstance(e) && e.statusCode === 404 ? null : String(e);
});
await check("ai: aborting a stream cancels it", () => leaves(async () => {
  const stop = new AbortController();
  const s = streamText({
    ...settings, maxOutputTokens: 4000, abortSignal: stop.signal,
    providerOptions: { ruvllm: { ignore_eos: true } },
  });
  for await (const _ of s.textStream) stop.abort();
}));
