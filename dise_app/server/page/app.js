// The page: sends a chat completion, shows the canvas while it is denoised, then each answer with its confidence.
"use strict";

const $ = (id) => document.getElementById(id);
const NUMBERS = ["max_tokens", "block_length", "tokens_per_step", "temperature", "n"];
let running = null;

async function start() {
  const health = await (await fetch("/health")).json();
  $("model").textContent = health.model;
  if (health.model.startsWith("countdown")) $("prompt").value = "83,18,75 -> 10";
  showBlocks(health.block_length);
  if (health.calibrated_selector !== null) keepSelector(health.calibrated_selector);
}

// A calibration holds for the scores that it was fitted on, and for no others.
function keepSelector(name) {
  $("selector").replaceChildren(new Option(name));
  $("selector").disabled = true;
}

// A block-causal model has blocks of its own and writes until its answer ends.
function showBlocks(blockLength) {
  const option = (name) => [...$("length").options].find((each) => each.value === name);
  if (blockLength === null) {
    option("until-end").remove();
    return;
  }
  $("block_length").value = blockLength;
  $("block_length").disabled = true;
  $("length").value = "until-end";
}

function request() {
  const number = Object.fromEntries(NUMBERS.map((name) => [name, Number($(name).value)]));
  return {
    messages: [{ role: "user", content: $("prompt").value }],
    max_tokens: number.max_tokens, temperature: number.temperature, n: number.n, logprobs: true, stream: true,
    seed: $("seed").value === "" ? null : Number($("seed").value),
    dise: {
      block_length: number.block_length, tokens_per_step: number.tokens_per_step, length: $("length").value,
      selector: $("selector").value, reviser: $("reviser").value || null, stream: "canvas",
    },
  };
}

async function write() {
  const started = performance.now();
  running = new AbortController();
  setBusy(true, "writing …");
  $("canvases").replaceChildren();
  $("answers").replaceChildren();
  $("answers_section").hidden = true;
  try {
    const headers = { "Content-Type": "application/json" };
    if ($("key").value) headers.Authorization = `Bearer ${utf8($("key").value)}`;
    const options = { method: "POST", headers, body: JSON.stringify(request()), signal: running.signal };
    const response = await fetch("/v1/chat/completions", options);
    if (!response.ok) throw await refusal(response);
    let cost = null, seed = null;
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      if (event.dise?.canvas) showCanvas(event.dise.canvas);
      for (const choice of event.choices) if (choice.dise) { showAnswer(choice); cost = event.dise; seed = choice.dise.seed; }
    }
    const seconds = ((performance.now() - started) / 1000).toFixed(2);
    setBusy(false, cost ? `${cost.nfe} forward passes, ${seconds} s, seed ${seed}` : "");
  } catch (error) {
    setBusy(false, error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  }
  $("canvas_section").hidden = true;
}

// A header holds one character for each byte.
function utf8(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function refusal(response) {
  if (response.status === 401) $("key_label").hidden = false;
  const body = await response.json().catch(() => null);
  return new Error(body?.error?.message ?? `the server answered ${response.status}`);
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function showCanvas(canvas) {
  $("canvas_section").hidden = false;
  while ($("canvases").children.length <= canvas.index) {
    const text = document.createElement("div");
    text.className = "text";
    $("canvases").append(text);
  }
  const text = $("canvases").children[canvas.index];
  if (canvas.is_fresh) {
    text.replaceChildren();
  }
  while (text.children.length < canvas.num_tokens) text.append(span("▒", "mask"));
  for (const old of text.querySelectorAll(".new")) old.classList.remove("new");
  for (const token of canvas.committed) {
    text.children[token.position].replaceWith(token.is_end ? span("·", "end") : span(token.text, "token new"));
  }
  for (const { position, logprob } of canvas.scored ?? []) {
    const token = text.children[position];
    if (token.classList.contains("token")) token.className = `token ${shade(logprob)}`;
    token.title = percent(logprob);
  }
}

function showAnswer(choice) {
  $("answers_section").hidden = false;
  const item = document.createElement("li");
  const text = document.createElement("div");
  text.className = "text";
  for (const token of choice.dise.tokens) {
    if (token.is_end) continue;
    const shown = span(token.text, `token ${shade(token.logprob)}${token.selected ? " selected" : ""}`);
    shown.title = percent(token.logprob);
    text.append(shown);
  }
  item.append(text, scoreLine(choice.dise));
  $("answers").append(item);
}

function scoreLine({ score, probability, abstained, length, revisions }) {
  const line = document.createElement("div");
  line.className = "score";
  const value = document.createElement("strong");
  value.textContent = score.value === null ? "no score" : `score ${score.value.toFixed(4)}`;
  const meter = document.createElement("meter");
  meter.max = 1;
  meter.value = score.value === null ? 0 : Math.exp(score.value);
  meter.title = "geometric mean probability";
  meter.setAttribute("aria-label", meter.title);
  if (probability !== null || abstained) line.append(chance(probability, abstained));
  line.append(value, meter, `${score.scorer} over ${score.selector}, ${score.num_positions} tokens`);
  if (length) line.append(`, ${length.trace.length} lengths tried, stopped by ${length.stopped_by}`);
  const accepted = (revisions ?? []).filter((revision) => revision.accepted);
  if (accepted.length) line.append(`, revised in ${accepted.length} round${accepted.length === 1 ? "" : "s"}`);
  return line;
}

// How likely the answer is right, by the server's calibration, and whether that is too little.
function chance(probability, abstained) {
  const shown = document.createElement("span");
  shown.className = `chance${abstained ? " abstained" : ""}`;
  const likely = probability === null ? [] : [`${(100 * probability).toFixed(1)} % likely to be right`];
  shown.textContent = [...likely, ...(abstained ? ["abstained"] : [])].join(", ");
  return shown;
}

function percent(logprob) {
  return `${(100 * (logprob === null ? 0 : Math.exp(logprob))).toFixed(1)} %`;
}

function shade(logprob) {
  const probability = logprob === null ? 0 : Math.exp(logprob);
  return probability >= 0.9 ? "sure" : probability >= 0.5 ? "likely" : probability >= 0.1 ? "unlikely" : "wrong";
}

function span(text, kind) {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}

function setBusy(isBusy, status, isError = false) {
  $("write").disabled = isBusy;
  $("stop").disabled = !isBusy;
  $("status").textContent = status;
  $("status").classList.toggle("error", isError);
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); write(); });
$("stop").addEventListener("click", () => running?.abort());
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
start().catch((error) => setBusy(false, error.message, true));
