// Helpers for the document. What a model or a server says becomes text, never markup.

export const $ = (id) => document.getElementById(id);

/** Return a new element; properties whose name holds a hyphen, and `role`, become attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Return a log-probability as a probability; null stands for minus infinity. */
export function probability(logprob) {
  return logprob === null ? 0 : Math.exp(logprob);
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** Put a text on the clipboard, also where the browser's own way is not allowed: without HTTPS, say. */
export async function copy(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
}

function copyBySelection(text) {
  const field = make("textarea", { value: text, className: "offscreen" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Return a button that copies, and says so for a moment. */
export function copyButton(label, textOf) {
  const button = make("button", { type: "button", className: "quiet" }, label);
  button.addEventListener("click", () => copied(button, textOf()));
  return button;
}

export async function copied(button, text) {
  const label = button.textContent;
  await copy(text);
  button.textContent = "Copied";
  button.disabled = true;
  setTimeout(() => { button.textContent = label; button.disabled = false; }, 1200);
}
