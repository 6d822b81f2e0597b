// Requests to the server: JSON, and streams of server-sent events.

import { $ } from "./dom.js";

/** Return the answer as JSON. Throws what `send` throws. */
export async function ask(path, body, signal) {
  return (await send(path, body, signal)).json();
}

/** Yield the events of a stream. Throws what `send` throws, and an Error for one that a stream ends with. */
export async function* events(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw refusal(event.error.message, event.error.param);
      yield event;
    }
  }
}

/** Return the response. Throws an Error, with the `param` at fault, unless the server answers 200. */
async function send(path, body, signal) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = `Bearer ${bytes($("key").value)}`;
  const method = body === undefined ? "GET" : "POST";
  const response = await fetch(path, { method, headers, body: JSON.stringify(body), signal });
  if (response.ok) return response;
  if (response.status === 401) $("key_label").hidden = false;
  const { error } = await response.json().catch(() => ({}));
  throw refusal(error?.message ?? `the server answered ${response.status}`, error?.param);
}

function refusal(message, param) {
  return Object.assign(new Error(message), { param });
}

// A header holds one character for each byte.
function bytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}
