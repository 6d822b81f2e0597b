// The page: what the form asks for, and what happens to its buttons and keys.

import * as answers from "./answers.js";
import { ask, events } from "./api.js";
import * as canvas from "./canvas.js";
import { $, copied, make, percent } from "./dom.js";
import { field, valuesIn } from "./fields.js";
import { fragmentOf, restore } from "./link.js";
import { Picker } from "./strategies.js";

const BASICS = ["max_tokens", "block_length", "tokens_per_step", "temperature", "n", "seed"];
const NUM_ALTERNATIVES = 5;
const MAX_TEXTS = 16;
const LOADING_MS = 1000;
const COUNTDOWN = {
  prompt: "83,18,75 -> 10",
  texts: ["18+75=93,93-83=10<answer>18+75-83</answer>", "83-75=8,8+18=10<answer>83-75+18</answer>"],
};
const WORDS = {
  prompt: "There are 12 pencils in a box. Sam takes 7 of them. How many pencils are left?",
  texts: ["12 - 7 = 5 pencils", "12 + 7 = 19 pencils"],
};
const EXAMPLES = { "countdown": COUNTDOWN, "countdown-blocks": COUNTDOWN, "word-problems": WORDS };

const form = $("form");
let list = null, pickers = [], running = null;

async function start() {
  const { model, status } = await (await fetch("health")).json();
  if (status === "loading") {
    setStatus(`the model: ${status} …`);
    setTimeout(() => start().catch(fail), LOADING_MS);
    return;
  }
  $("model").textContent = model ?? "";
  await load();
}

/** Get the list of strategies and options, and make the form of it. */
async function load() {
  if (list !== null) return;
  list = await ask("v1/strategies");
  const isPicked = (option) => list.data.some((entry) => entry.option === option.name);
  const options = list.options.filter((option) => !isPicked(option));
  const inBasics = (option) => BASICS.includes(option.name);
  const basics = options.filter(inBasics).sort((a, b) => BASICS.indexOf(a.name) - BASICS.indexOf(b.name));
  $("basics").replaceChildren(...basics.map(optionField));
  $("rest").replaceChildren(...options.filter((option) => !inBasics(option)).map(optionField));
  pickers = [...new Set(list.data.map((entry) => entry.option))].map(picker);
  $("pickers").replaceChildren(...pickers.map((each) => each.element));
  fitModel(list.model);
  setStatus("");
  fillIn();
}

function optionField(option) {
  const label = field(option);
  if (!option.scores) label.classList.add("only-write");
  return label;
}

function picker(option) {
  const entries = list.data.filter((entry) => entry.option === option);
  const named = list.options.find((each) => each.name === option)?.default ?? null;
  const own = { selector: "the scorer's own", length: "as the model writes", reviser: "none" };
  return new Picker(option, entries, { name: named, label: named ?? own[option] ?? "none" });
}

/** Show what the model and its calibration have decided. */
function fitModel({ block_length: blockLength, calibration }) {
  if (blockLength !== null) {
    $("block_length").value = blockLength;
    $("block_length").disabled = true;
  }
  if (calibration === null) return;
  for (const each of pickers) if (each.option in calibration) each.lock(calibration[each.option]);
  const { threshold } = calibration;
  const promise = threshold === null ? "" : `; abstains where more than ${percent(threshold.max_risk)} `
    + `of the answers might be wrong (confidence ${percent(threshold.confidence)})`;
  $("calibration").textContent = `Calibrated on ${calibration.num_labels} labelled answers${promise}.`;
  $("calibration").hidden = false;
}

/** Fill the form from the address, or with an example's texts where an embedded model is served. */
function fillIn() {
  setTexts([""]);
  if (location.hash.length > 1) {
    fromLink();
  } else if (Object.hasOwn(EXAMPLES, list.model.name)) {
    const { prompt, texts } = EXAMPLES[list.model.name];
    $("prompt").value ||= prompt;
    setTexts(texts);
  }
  showChosen();
}

function fromLink() {
  const fragment = location.hash.slice(1);
  form.reset();
  for (const each of pickers) each.show();
  fitModel(list.model);
  const unknown = restore(form, fragment, setTexts);
  setMode(new URLSearchParams(fragment).get("mode") === "score" ? "score" : "write");
  showChosen();
  setStatus(unknown.length ? `the link asks for what is not here: ${unknown.join(", ")}` : "", unknown.length > 0);
}

function setMode(mode) {
  form.dataset.mode = mode;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab.dataset.mode === mode));
    tab.tabIndex = tab.dataset.mode === mode ? 0 : -1;
  }
  $("prompt").required = mode === "write";
  for (const text of texts()) text.required = mode === "score";
  $("write").textContent = mode === "write" ? "Write" : "Score";
}

function texts() {
  return [...$("texts").querySelectorAll("textarea")];
}

function setTexts(given) {
  $("texts").replaceChildren();
  for (const text of given.length ? given.slice(0, MAX_TEXTS) : [""]) addText(text);
}

function addText(text = "") {
  const number = texts().length + 1;
  const area = make("textarea", { name: "text", rows: 3, value: text, required: form.dataset.mode === "score" });
  area.id = number === 1 ? "text" : `text_${number}`;
  const caption = number === 1 ? "Text to score" : `Text ${number}`;
  $("texts").append(make("label", { className: "wide" }, caption, area));
  $("add_text").hidden = number >= MAX_TEXTS;
  return area;
}

function showChosen() {
  const named = pickers.filter((each) => each.select.value !== "").map((each) => each.name);
  $("chosen").textContent = named.join(", ");
}

/** Return the request's fields: those of the request itself, and those of its `dise` object. */
function asked() {
  const isScored = form.dataset.mode === "score", request = {}, dise = {};
  const values = { ...valuesIn($("basics")), ...valuesIn($("rest")) };
  for (const option of list.options) {
    if (!(option.name in values) || (isScored && !option.scores)) continue;
    (option.in === "request" && !isScored ? request : dise)[option.name] = values[option.name];
  }
  for (const each of pickers) {
    if (!isScored || each.option === "scorer" || each.option === "selector") Object.assign(dise, each.request());
  }
  return { request, dise };
}

async function run() {
  const started = performance.now();
  running?.abort();
  const mine = running = new AbortController();
  try {
    await load();
    history.replaceState(null, "", `#${fragmentOf(form)}`);
    setBusy(true, form.dataset.mode === "write" ? "writing …" : "scoring …");
    const { cost, seed } = await (form.dataset.mode === "write" ? write : score)(mine.signal);
    const seconds = ((performance.now() - started) / 1000).toFixed(2);
    const passes = `${cost.nfe} forward pass${cost.nfe === 1 ? "" : "es"}`;
    setStatus(`${passes}, ${seconds} s${seed === null ? "" : `, seed ${seed}`}`);
  } catch (error) {
    if (mine === running) fail(error);
  }
  if (mine !== running) return;
  running = null;
  setBusy(false);
  $("canvas_section").hidden = true;
}

async function write(signal) {
  const { request, dise } = asked(), prompt = $("prompt").value, isChat = list.model.has_chat_template;
  begin("Answers, best score first");
  const path = isChat ? "v1/chat/completions" : "v1/completions";
  const said = isChat
    ? { messages: [{ role: "user", content: prompt }], logprobs: true, top_logprobs: NUM_ALTERNATIVES }
    : { prompt, logprobs: NUM_ALTERNATIVES };
  const body = { ...said, ...request, stream: true, dise: { ...dise, stream: "canvas" } };
  const written = [];
  let cost = { nfe: 0 }, seed = null;
  for await (const event of events(path, body, signal)) {
    if (event.dise?.canvas) canvas.show(event.dise.canvas);
    for (const choice of event.choices) {
      written[choice.index] = (written[choice.index] ?? "") + (choice.delta?.content ?? choice.text ?? "");
      if (!choice.dise) continue;
      addAnswer(prompt, written[choice.index], choice.dise);
      cost = event.dise;
      seed = choice.dise.seed;
    }
  }
  return { cost, seed };
}

async function score(signal) {
  const prompt = $("prompt").value, given = texts().map((text) => text.value).filter((text) => text !== "");
  begin(given.length > 1 ? "Scored texts" : "Scored text");
  const body = { prompt, response: given, logprobs: NUM_ALTERNATIVES, ...asked().dise };
  const answer = await ask("v1/score", body, signal);
  answer.data.forEach((said, index) => addAnswer(prompt, given[index], said));
  return { cost: answer.dise, seed: null };
}

function begin(title) {
  $("empty").hidden = true;
  canvas.clear();
  answers.clear(title);
  if (matchMedia("(max-width: 62rem)").matches) $("results").scrollIntoView();
}

function addAnswer(prompt, text, said) {
  const onTry = (old, changed) => scoreTexts(prompt, [old, changed], true);
  answers.add(text, said, onTry, (own) => scoreTexts(prompt, [own]));
}

/** Put texts into the form, and score them at once if that is asked for. */
function scoreTexts(prompt, given, isNow = false) {
  $("prompt").value = prompt;
  setTexts(given);
  setMode("score");
  if (!isNow) {
    $("text").focus();
    return;
  }
  $("compare").checked = true;
  form.requestSubmit();
}

function fail(error) {
  const isStopped = error.name === "AbortError";
  setStatus(isStopped ? "stopped" : error.message, !isStopped);
  const place = form.elements.namedItem(error.param?.split(".").at(-1) ?? "");
  if (isStopped || !place?.setAttribute) return;
  place.setAttribute("aria-invalid", "true");
  place.closest("details")?.setAttribute("open", "");
}

function setBusy(isBusy, status) {
  $("write").disabled = isBusy;
  $("halt").disabled = !isBusy;
  if (!isBusy) return;
  setStatus(status);
  for (const wrong of form.querySelectorAll("[aria-invalid]")) wrong.removeAttribute("aria-invalid");
}

function setStatus(status, isError = false) {
  $("status").textContent = status;
  $("status").classList.toggle("error", isError);
}

form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
form.addEventListener("change", showChosen);
form.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("inspector").matches(":popover-open")) running?.abort();
});
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => setMode(tab.dataset.mode));
  tab.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    setMode(form.dataset.mode === "write" ? "score" : "write");
    $(`tab_${form.dataset.mode}`).focus();
  });
}
$("halt").addEventListener("click", () => running?.abort());
$("add_text").addEventListener("click", () => addText().focus());
$("compare").addEventListener("change", answers.compare);
$("key").addEventListener("change", () => load().catch(fail));
$("link").addEventListener("click", () => copied($("link"), `${location.href.split("#")[0]}#${fragmentOf(form)}`));
window.addEventListener("hashchange", () => { if (list !== null) fromLink(); });
start().catch(fail);
