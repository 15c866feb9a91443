"use strict";

// Text from people and models becomes text nodes only, never markup: see render().

const at = (id) => document.getElementById(id);
let turns = []; // {question, text, id, box...}: the conversation that is sent with each question
// A fork is where a question was asked, or answered, more than once: {tails, now}. Each tail is the
// turns from there on; the one at `now` is the one that is shown, and its place in the list is stale.
let fork = null; // where the next question begins a new tail
let running = null; // the AbortController of the answer that is being made
let key = sessionStorage.getItem("key") || "";

// ---- small helpers ----

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function button(label, title, act) {
  const b = make("button", "", label);
  b.type = "button";
  b.title = title;
  b.setAttribute("aria-label", title);
  b.addEventListener("click", act);
  return b;
}

// Shift+Enter begins a line, and Enter may end a word of a script that is composed.
function on_enter(box, act) {
  box.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    act();
  });
}

function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("wrong", wrong);
}

// ---- requests ----

async function request(path, body, signal) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  if (body) headers["content-type"] = "application/json";
  const r = await fetch(path, {
    method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal,
  });
  if (r.status === 401) at("unlock").hidden = false;
  if (r.ok) return r;
  const told = await r.json().catch(() => null);
  const problem = new Error(told?.error?.message || `the server answered ${r.status}`);
  problem.status = r.status;
  throw problem;
}

// The JSON objects of a stream of server-sent events.
async function* events(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}

// ---- Markdown: fences, headings, lists, quotes, paragraphs; code, bold, emphasis, links ----

const INLINE = /`([^`]+)`|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/;

function inline(parent, text) {
  for (let m; (m = INLINE.exec(text)); text = text.slice(m.index + m[0].length)) {
    parent.append(text.slice(0, m.index));
    const [, code, bold, emphasis, label, address] = m;
    const node = make(code ? "code" : bold ? "strong" : emphasis ? "em" : "a");
    if (code) node.append(code);
    else inline(node, bold || emphasis || label);
    if (address) Object.assign(node, { href: address, rel: "noreferrer", target: "_blank" });
    parent.append(node);
  }
  parent.append(text);
}

const BLOCKS = [
  { begin: /^#{1,6} +/, tag: "h2", alone: true },
  { begin: /^ *[-*+] +/, tag: "ul", item: "li" },
  { begin: /^ *\d+[.)] +/, tag: "ol", item: "li" },
  { begin: /^> ?/, tag: "blockquote", item: "div" },
];

function block(box, last, line) {
  const kind = BLOCKS.find((b) => b.begin.test(line));
  const text = kind ? line.replace(kind.begin, "") : line;
  const tag = kind?.tag || "p";
  const goes_on = last && last.localName === tag && !kind?.alone;
  const node = goes_on ? last : make(tag);
  if (!goes_on) box.append(node);
  if (tag === "ol" && !goes_on) node.start = parseInt(line, 10);
  const to = kind?.item ? node.appendChild(make(kind.item)) : node;
  if (goes_on && to === node) node.append("\n", make("br"));
  inline(to, text);
  return node;
}

function render(box, text) {
  box.replaceChildren();
  let code = null, last = null;
  for (const line of text.split("\n")) {
    if (/^ *```/.test(line)) {
      code = code ? null : make("code");
      if (code) box.append(make("pre", "", code));
      last = null;
    } else if (code) {
      code.append(line + "\n");
    } else {
      last = line.trim() ? block(box, last, line) : null;
    }
  }
}

// ---- answers ----

function figures(begun, first, end, usage) {
  const wait = `first text after ${((first - begun) / 1000).toFixed(2)} s`;
  if (!usage) return wait;
  const n = usage.completion_tokens;
  const rate = n > 1 && end > first ? (n - 1) * 1000 / (end - first) : 0;
  return `${wait}, ${n} tokens${rate ? `, ${rate.toFixed(1)} a second` : ""}`;
}

function messages(before, question) {
  const list = before.filter((t) => t.text).flatMap((t) => [
    { role: "user", content: t.question }, { role: "assistant", content: t.text }]);
  return [...list, { role: "user", content: question }];
}

// The model of the next answer, and how it is made; a preset says that itself.
function chosen() {
  const model = at("model").value;
  if (at("model").selectedOptions[0]?.dataset.preset) return { model };
  return {
    model, temperature: at("temperature").valueAsNumber || 0,
    max_tokens: at("most").valueAsNumber || -1,
  };
}

// Streams an answer into a box. Returns {text, id, stopped, wrong}.
async function answer(before, question, box) {
  const text_box = box.appendChild(make("div", "text"));
  const note = box.appendChild(make("p", "figures"));
  const made = { text: "", id: "", stopped: false, wrong: "" };
  const begun = performance.now();
  let first = 0, end = 0, usage = null, drawn = 0;
  const draw = () => {
    const turns_box = at("turns");
    const low = turns_box.scrollHeight - turns_box.scrollTop - turns_box.clientHeight < 80;
    drawn = 0;
    render(text_box, made.text);
    if (low) turns_box.scrollTop = turns_box.scrollHeight;
  };
  running = new AbortController();
  busy(true);
  try {
    const response = await request("v1/chat/completions", {
      messages: messages(before, question), stream: true,
      stream_options: { include_usage: true }, ...chosen(),
    }, running.signal);
    for await (const e of events(response)) {
      if (e.error) throw new Error(e.error.message);
      made.id = e.id;
      usage = e.usage || usage;
      const piece = e.choices[0]?.delta.content;
      if (!piece) continue;
      end = performance.now();
      first = first || end;
      made.text += piece;
      drawn = drawn || requestAnimationFrame(draw);
    }
  } catch (e) {
    made.stopped = e.name === "AbortError";
    made.wrong = made.stopped ? "" : e.message;
  }
  cancelAnimationFrame(drawn);
  draw();
  running = null;
  busy(false);
  note.textContent = first ? figures(begun, first, end, usage) : "";
  const n = usage?.completion_tokens || 0;
  if (n > 1 && end > first) speeds.push((n - 1) * 1000 / (end - first));
  if (made.stopped) note.append(" – stopped");
  if (made.wrong) note.append(make("span", "wrong", made.wrong));
  at("spoken").textContent = made.text;
  say(made.wrong || (made.stopped ? "Stopped." : ""), Boolean(made.wrong));
  return made;
}

function busy(yes) {
  at("stop").hidden = !yes;
  at("send").hidden = yes;
  for (const b of document.querySelectorAll(".tools button, .branches button, #new, #back"))
    b.disabled = yes;
  if (!yes) show();
  const picked = at("model").selectedOptions[0]?.dataset;
  if (yes) say(picked?.out ? `Loading ${picked.base}, then answering…` : "Answering…");
}

async function fill(turn) {
  const box = make("div", "answer");
  turn.answers.append(box);
  const made = await answer(turns.slice(0, turns.indexOf(turn)), turn.question, box);
  Object.assign(turn, made);
  tools(turn);
  look_again().catch(() => {});
  learning();
}

async function ask(question) {
  const turn = {
    question, text: "", id: "", answers: make("div", "answers"), below: make("div"),
    places: make("div", "branches"), fork: fork || { tails: [], now: 0 },
  };
  turn.box = make("article", "", make("div", "question", question), turn.places, turn.answers,
    turn.below);
  turn.fork.now = turn.fork.tails.length;
  turn.fork.tails.push([turn]);
  fork = null;
  turns.push(turn);
  show();
  turn.box.scrollIntoView();
  await fill(turn);
}

// ---- branches: what was said before a question was edited, or answered again, is kept ----

// Draws the conversation as it now is.
function show() {
  at("turns").replaceChildren(...turns.map((t) => t.box));
  at("back").hidden = !fork;
  for (const t of turns) {
    const { tails, now } = t.fork;
    const move = (label, title, by) => {
      const b = button(label, title, () => go(t, by));
      b.disabled = Boolean(running) || !tails[now + by];
      return b;
    };
    t.places.replaceChildren(...(tails.length < 2 ? [] : [
      move("‹", "Earlier branch", -1), make("span", "", `${now + 1}/${tails.length}`),
      move("›", "Later branch", 1)]));
  }
}

// Takes a question and what follows it out of the conversation, and keeps it.
function part(turn) {
  turn.fork.tails[turn.fork.now] = turns.splice(turns.indexOf(turn));
  return turn.fork;
}

function go(turn, by) {
  if (running || fork) return;
  const f = part(turn);
  f.now += by;
  turns.push(...f.tails[f.now]);
  show();
  turns[turns.length - 1].box.scrollIntoView();
  say(`Branch ${f.now + 1} of ${f.tails.length}.`);
}

// The question is to be asked otherwise.
function edit(turn) {
  back();
  fork = part(turn);
  show();
  at("question").value = turn.question;
  at("question").focus();
}

// Not after all.
function back() {
  if (!fork) return;
  turns.push(...fork.tails[fork.now]);
  fork = null;
  at("question").value = "";
  show();
}

function again(turn) {
  back();
  fork = part(turn);
  return ask(turn.question);
}

// ---- what the user says about an answer ----

function svg(tag, values) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  return node;
}

// Drawn here, because not every machine has a font with thumbs.
function thumb(way) {
  const node = svg("svg", { viewBox: "0 0 24 24", class: `thumb ${way}`, "aria-hidden": "true" });
  node.append(svg("path", { d: "M3 11h4v9H3zM9 20h8.5a2 2 0 0 0 2-1.5l1.4-6A2 2 0 0 0 19 10h-5" +
    "l.8-4.2a1.9 1.9 0 0 0-3.4-1.5L9 10z" }));
  return node;
}

function tools(turn) {
  const bar = make("div", "tools");
  const told = make("p", "told");
  told.setAttribute("role", "status");
  bar.append(button("↻ Again", "Answer again", () => again(turn)), button("Edit", "Edit this question", () => edit(turn)));
  if (turn.id && !turn.stopped && !turn.wrong) {
    bar.append(
      button(thumb("up"), "Good answer", () => feedback(turn, { rating: 1 }, told)),
      button(thumb("down"), "Bad answer", () => feedback(turn, { rating: -1 }, told)),
      button("✎ Correct", "Correct this answer", () => correct(turn, told)));
  }
  turn.below.replaceChildren(bar, told);
}

async function feedback(turn, verdict, told) {
  told.textContent = "Learning…";
  told.classList.remove("wrong");
  try {
    const r = await (await request("v1/feedback", { response_id: turn.id, ...verdict })).json();
    const seconds = `${(r.seconds * 1000).toFixed(0)} ms`;
    told.textContent = r.applied ? `Learned in ${seconds}` : `Noted in ${seconds}`;
    if (r.notes) told.append(`: ${r.notes}`);
    learning();
    return true;
  } catch (e) {
    told.textContent = e.message;
    told.classList.add("wrong");
    return false;
  }
}

function correct(turn, told) {
  if (turn.below.querySelector("form")) return;
  const right = make("textarea");
  right.required = true;
  right.value = turn.text.trim();
  right.rows = Math.min(8, Math.max(2, Math.ceil(right.value.length / 80)));
  right.setAttribute("aria-label", "The right answer");
  const scope = make("select", "", new Option("in other words too", "topic"),
    new Option("for these words only", "exact"));
  scope.setAttribute("aria-label", "When this answer is right");
  const form = make("form", "", right, scope, make("button", "", "Teach"),
    button("Cancel", "Cancel the correction", () => form.remove()));
  on_enter(right, () => form.requestSubmit());
  right.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    e.stopPropagation();
    form.remove();
  });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    if (running) return;
    if (!await feedback(turn, { correction: right.value, scope: scope.value }, told)) return;
    form.remove();
    await compare(turn);
  });
  turn.below.append(form);
  right.focus();
  right.select();
}

// The question is asked again, and the new answer stands beside the old one.
async function compare(turn) {
  const old = turn.answers.lastElementChild, box = make("div", "answer", make("h2", "when", "After"));
  old.querySelector(".when")?.remove();
  old.prepend(make("h2", "when", "Before"));
  turn.answers.replaceChildren(old, box);
  const made = await answer(turns.slice(0, turns.indexOf(turn)), turn.question, box);
  if (!made.wrong) Object.assign(turn, made);
}

// ---- the panel ----

// A question and its answer, or an instruction.
function lesson(l) {
  return l.text ? make("li", "", l.text)
    : make("li", "", l.question, " → ", make("strong", "", l.answer));
}

// A generation of adapters, and the way back to it.
function generation(g) {
  const about = g.loss === undefined ? "" : `, loss ${g.loss.toFixed(3)}`;
  const state = g.rolled_back ? ", rolled back" : g.active ? ", active" : "";
  const item = make("li", "", `Generation ${g.number}${about}${state} `);
  item.append(button("Return", `Return to generation ${g.number}`,
    () => take_back("rollback", { generation: g.number })));
  return item;
}

// Undoes or rolls back, and says what that did.
async function take_back(how, body = {}) {
  const told = at("learning-told");
  try {
    const r = await (await request(`v1/learning/${how}`, { model: base(), ...body })).json();
    told.textContent = r.notes || "Done.";
  } catch (e) {
    told.textContent = e.message;
  }
  learning();
}

const speeds = []; // tokens a second, of the answers since the page was opened

// A line through the values, from 0 on; nothing for fewer than two.
function plot(label, values, digits) {
  if (values.length < 2) return [];
  const most = Math.max(...values) || 1, step = 100 / (values.length - 1);
  const text = `${label}: ${values[values.length - 1].toFixed(digits)}, ` +
    `at most ${most.toFixed(digits)}`;
  const picture = svg("svg", {
    viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": text,
  });
  picture.append(svg("polyline", {
    points: values.map((v, i) => `${i * step},${39 - 38 * v / most}`).join(" "),
  }));
  return [make("figure", "", picture, make("figcaption", "", text))];
}

function plots(generations) {
  const drift = generations.filter((g) => g.probe_kl !== undefined).map((g) => g.probe_kl);
  at("plots").replaceChildren(...plot("Tokens a second, by answer", speeds.slice(-50), 1),
    ...plot("Drift of other answers (KL), by generation", drift, 4));
}

// The model whose learned state is shown.
function base() {
  return at("model").selectedOptions[0]?.dataset.base || "";
}

let next_look = 0;

// Asks again while something runs or is about to: what is learned changes only by what users say, or
// by that.
async function learning() {
  clearTimeout(next_look);
  try {
    const r = await (await request(`v1/learning?model=${encodeURIComponent(base())}`)).json();
    const p = r.background_progress;
    const rests = r.background === "off" || r.background === "resting";
    const work = rests ? "Nothing is running."
      : `Running: ${r.background}${p?.total ? `, ${p.stage} ${p.done} of ${p.total}` : ""}.`;
    const waiting = r.waiting ? `, ${r.waiting} not yet in the weights` : "";
    at("learning-state").textContent =
      `Version ${r.learned_version}; lessons: ${r.lessons}${waiting}; ` +
      `generations: ${r.generations.length}. ${work}`;
    if (!rests || (r.waiting && r.background !== "off")) next_look = setTimeout(learning, 5000);
    at("training").hidden = !p?.total;
    at("training").value = p?.total ? p.done / p.total : 0;
    at("undo").hidden = !r.learned_version;
    at("lessons").replaceChildren(...[...r.learned, ...r.instructions].map(lesson));
    at("generations").replaceChildren(...r.generations.map(generation));
    plots(r.generations);
  } catch (e) {
    at("learning-state").textContent = e.message;
  }
}

// ---- beginning ----

// The models, their adapters and presets to choose from. A model that is not loaded comes when it is
// first asked.
function models(list) {
  const was = at("model").value;
  const out = new Set(list.filter((m) => m.status && m.status.value !== "loaded").map((m) => m.id));
  const kinds = [["Models", list.filter((m) => !m.parent)],
    ["Adapters", list.filter((m) => m.parent && !m.preset)], ["Presets", list.filter((m) => m.preset)]];
  at("model").replaceChildren(...kinds.filter(([, of]) => of.length).map(([label, of]) => {
    const group = make("optgroup", "", ...of.map((m) => {
      const o = new Option(out.has(m.id) ? `${m.id} (not loaded)` : m.id, m.id);
      o.dataset.base = m.parent || m.id;
      if (out.has(o.dataset.base)) o.dataset.out = "yes";
      if (m.preset) o.dataset.preset = "yes";
      o.disabled = m.capabilities?.[0] === "embedding"; // it writes no texts
      return o;
    }));
    group.label = label;
    return group;
  }));
  if (list.some((m) => m.id === was)) at("model").value = was;
  own();
}

// A preset has its own temperature and length.
function own() {
  const preset = Boolean(at("model").selectedOptions[0]?.dataset.preset);
  at("temperature").disabled = at("most").disabled = preset;
}

// Which of several models are loaded changes while one asks.
async function look_again() {
  if (at("model").querySelector("option[data-out]"))
    models((await (await request("v1/models")).json()).data);
}

async function begin() {
  try {
    const list = await (await request("v1/models")).json();
    models(list.data);
    await request("health");
    at("unlock").hidden = true;
    say("");
    learning();
  } catch (e) {
    say(e.message, e.status !== 503);
    if (e.status !== 401) setTimeout(begin, 1000);
  }
}

function send() {
  const question = at("question").value.trim();
  if (!question || running) return;
  at("question").value = "";
  ask(question);
}

at("ask").addEventListener("submit", (e) => {
  e.preventDefault();
  send();
});
on_enter(at("question"), send);
document.addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  if (running) running.abort();
  else back();
});
at("model").addEventListener("change", () => {
  own();
  learning();
});
at("undo").addEventListener("click", () => take_back("undo"));
at("back").addEventListener("click", back);
at("stop").addEventListener("click", () => running?.abort());
at("new").addEventListener("click", () => {
  turns = [];
  fork = null;
  show();
  say("");
  at("question").focus();
});
at("unlock").addEventListener("submit", (e) => {
  e.preventDefault();
  key = at("key").value;
  sessionStorage.setItem("key", key);
  begin();
});
document.addEventListener("visibilitychange", () => document.hidden || learning());
// On a phone the chat needs the room.
const narrow = matchMedia("(max-width: 48rem)");
const unfold = () => at("learning").open = !narrow.matches;
narrow.addEventListener("change", unfold);
unfold();
begin();
at("question").focus();
