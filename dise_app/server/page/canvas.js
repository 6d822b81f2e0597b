// Answers while they are written: masks, and committed tokens in the colour of their confidence.

import { $, make, percent, probability } from "./dom.js";
import { shade } from "./tokens.js";

export function clear() {
  $("canvases").replaceChildren();
}

/** Show one update of a stream. */
export function show(canvas) {
  $("canvas_section").hidden = false;
  while ($("canvases").children.length <= canvas.index) $("canvases").append(blank());
  const [progress, text] = $("canvases").children[canvas.index].children;
  if (canvas.is_fresh) text.replaceChildren();
  while (text.children.length < canvas.num_tokens) text.append(make("span", { className: "mask" }));
  for (const old of text.querySelectorAll(".new")) old.classList.remove("new");
  for (const token of canvas.committed) text.children[token.position].replaceWith(written(token));
  for (const { position, logprob } of canvas.scored ?? []) colour(text.children[position], logprob);
  progress.max = canvas.num_tokens;
  progress.value = canvas.num_tokens - text.querySelectorAll(".mask").length;
}

function blank() {
  const progress = make("progress", { "aria-label": "tokens written" });
  return make("div", { className: "canvas" }, progress, make("div", { className: "text" }));
}

function written(token) {
  if (token.is_end) return make("span", { className: "end", title: token.text }, "·");
  const made = make("span", { className: "token new" }, token.text);
  if (token.logprob !== undefined && token.logprob !== null) colour(made, token.logprob);
  return made;
}

function colour(token, logprob) {
  if (!token?.classList.contains("token")) return;
  token.classList.remove("sure", "likely", "unlikely", "wrong");
  token.classList.add(shade(logprob));
  token.title = percent(probability(logprob));
}
