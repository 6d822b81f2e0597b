// A finished text token by token: colours, the keyboard's way over it, and what else could stand there.

import { $, make, percent, probability } from "./dom.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
const pieceOf = new WeakMap();

export function shade(logprob) {
  const p = probability(logprob);
  return p >= 0.9 ? "sure" : p >= 0.5 ? "likely" : p >= 0.1 ? "unlikely" : "wrong";
}

/**
 * Return a box with the tokens of an answer.
 * length: of its text, which ends before a stop text; what follows is not shown. onTry: called with the text in which another
 * token stands.
 */
export function tokenBox(tokens, length, onTry) {
  const label = "Tokens: arrow keys walk over them, Enter shows alternatives";
  const box = make("div", { className: "text", role: "group", "aria-label": label });
  let offset = 0;
  for (const piece of pieces(tokens)) {
    const text = piece.text.slice(0, Math.max(0, length - offset));
    if (text !== "") box.append(shown({ ...piece, text }));
    offset += piece.text.length;
  }
  if (box.firstElementChild) box.firstElementChild.tabIndex = 0;
  box.addEventListener("keydown", (event) => walk(box, event));
  box.addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (token) { focusOn(box, token); inspect(token, box, onTry); }
  });
  return box;
}

/** Mark the tokens that differ from those of another box; none for null. */
export function markDifferences(box, other) {
  const tokens = [...box.children];
  const same = other ? common([...other.children].map(idsOf), tokens.map(idsOf)) : null;
  tokens.forEach((token, index) => token.classList.toggle("differs", same !== null && !same.has(index)));
}

/** Return the parts of a text, each with the tokens that spell it: a character may take several. */
function pieces(tokens) {
  const found = [];
  let waiting = [];
  for (const token of tokens.filter((each) => !each.is_end)) {
    waiting.push(token);
    if (token.text === "") continue;
    found.push({ text: token.text, tokens: waiting });
    waiting = [];
  }
  return found;
}

function shown(piece) {
  const logprob = least(piece.tokens);
  const kinds = ["token", shade(logprob)];
  if (piece.tokens.some((token) => token.selected)) kinds.push("selected");
  if (/^\s*\n\s*$/.test(piece.text)) kinds.push("newline");
  const said = percent(probability(logprob));
  const token = make("span", {
    className: kinds.join(" "), title: said, tabIndex: -1, role: "button",
    "aria-label": `${visible(piece.text)}, ${said}`,
  }, piece.text);
  pieceOf.set(token, piece);
  return token;
}

/** Return the lowest log-probability; null stands for minus infinity. */
function least(tokens) {
  const logprobs = tokens.map((token) => token.logprob);
  return logprobs.includes(null) ? null : Math.min(...logprobs);
}

function walk(box, event) {
  const tokens = [...box.children], at = tokens.indexOf(event.target);
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in STEPS) {
    focusOn(box, tokens[Math.max(0, Math.min(tokens.length - 1, at + STEPS[event.key]))]);
  } else if (event.key === "Enter" || event.key === " ") {
    event.target.click();
  } else return;
  event.preventDefault();
}

function focusOn(box, token) {
  box.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
  token.tabIndex = 0;
  token.focus();
}

/** Show a token's probability, and the likeliest tokens at its place. */
function inspect(token, box, onTry) {
  const piece = pieceOf.get(token), panel = $("inspector");
  const close = make("button", { type: "button", className: "quiet close", "aria-label": "Close" }, "×");
  close.addEventListener("click", () => panel.hidePopover());
  panel.replaceChildren(close, ...piece.tokens.map((each) => facts(each, piece)));
  for (const each of piece.tokens) panel.append(alternatives(each, piece, token, box, onTry));
  if (!panel.matches(":popover-open")) panel.showPopover();
  place(panel, token.getBoundingClientRect());
  (panel.querySelector("li button:enabled") ?? close).focus();
}

function facts(token, piece) {
  const p = percent(probability(token.logprob));
  const nats = token.logprob === null ? "−∞" : token.logprob.toFixed(3);
  const part = piece.tokens.length > 1 ? `part of ${visible(piece.text)}, ` : "";
  const counts = token.selected ? ", counts for the score" : "";
  const written = token.written === undefined ? "" : `, ${percent(probability(token.written))} when it was written`;
  return make("p", {}, make("strong", {}, visible(token.text) || `token ${token.id}`),
    make("span", { className: "hint" }, ` ${part}${p} to write it again (${nats} nats)${written}${counts}`));
}

function alternatives(token, piece, shownAs, box, onTry) {
  const list = make("ul", { "aria-label": "Likeliest tokens here" });
  for (const { id, text, logprob } of token.top_logprobs ?? []) {
    const button = make("button", { type: "button" }, visible(text) || `token ${id}`);
    button.disabled = id === token.id || piece.tokens.length > 1 || text === "";
    button.title = button.disabled ? "" : "Score the text with this token";
    button.addEventListener("click", () => {
      $("inspector").hidePopover();
      onTry([...box.children].map((each) => (each === shownAs ? text : pieceOf.get(each).text)).join(""));
    });
    const meter = make("meter", { value: probability(logprob), "aria-hidden": "true" });
    const share = make("span", { className: "figure" }, percent(probability(logprob)));
    list.append(make("li", { className: id === token.id ? "own" : "" }, button, meter, share));
  }
  return list;
}

/** Put the panel below a token, or above it where there is no room; on a phone it lies at the bottom. */
function place(panel, { left, top, bottom }) {
  const { width, height } = panel.getBoundingClientRect();
  const below = bottom + 8 + height <= window.innerHeight || top < height + 8;
  panel.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  panel.style.top = `${below ? bottom + 8 : top - height - 8}px`;
}

/** Return a text with its blanks made visible. */
function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

function idsOf(token) {
  return pieceOf.get(token).tokens.map((each) => each.id).join();
}

/** Return the indices in `second` of a longest common subsequence of two lists; all for very long ones. */
function common(first, second) {
  const rows = first.length + 1, columns = second.length + 1;
  if (rows * columns > 4e6) return new Set(second.keys());
  const lengths = new Uint16Array(rows * columns);
  for (let i = rows - 2; i >= 0; i--) {
    for (let j = columns - 2; j >= 0; j--) {
      lengths[i * columns + j] = first[i] === second[j]
        ? lengths[(i + 1) * columns + j + 1] + 1
        : Math.max(lengths[(i + 1) * columns + j], lengths[i * columns + j + 1]);
    }
  }
  const found = new Set();
  for (let i = 0, j = 0; i < rows - 1 && j < columns - 1;) {
    if (first[i] === second[j]) { found.add(j); i++; j++; }
    else if (lengths[(i + 1) * columns + j] >= lengths[i * columns + j + 1]) i++;
    else j++;
  }
  return found;
}
