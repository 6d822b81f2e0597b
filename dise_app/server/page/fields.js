// Form fields for the settings that GET /v1/strategies lists. An empty field leaves the default.

import { make } from "./dom.js";

const settings = new WeakMap();
const FORMS = { json: " (JSON)", texts: " (one a line)" };

/** Return a label with the field of one setting. */
export function field(setting, name = setting.name) {
  const input = setting.enum || setting.type === "boolean" ? chooser(setting) : entry(setting);
  Object.assign(input, { name, id: name.replaceAll(".", "-"), title: setting.description });
  settings.set(input, setting);
  const caption = make("span", {}, setting.name.replaceAll("_", " ") + (FORMS[setting.type] ?? ""));
  const about = make("small", { className: "hint" }, setting.description);
  return make("label", { className: "field" }, caption, input, about);
}

/** Return what a field says, or undefined where it is empty. Throws an Error for what is no JSON. */
export function valueOf(input) {
  const text = input.value.trim(), setting = settings.get(input);
  if (text === "") return undefined;
  if (setting.enum) return setting.enum.find((value) => String(value) === text);
  if (setting.type === "string") return input.value;
  if (setting.type === "integer" || setting.type === "number") return Number(text);
  const parsed = parse(text);
  if (setting.type === "texts") return isTexts(parsed) ? parsed : input.value.split("\n").filter(Boolean);
  if (parsed !== undefined) return parsed;
  throw Object.assign(new Error(`${setting.name}: ${text} is not JSON`), { param: setting.name });
}

/** Return what JSON says, or undefined for any other text. */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a value is a list of texts, which in JSON may hold line breaks. */
function isTexts(value) {
  return Array.isArray(value) && value.every((each) => typeof each === "string");
}

/** Return the values of all fields inside an element, by the names of their settings. */
export function valuesIn(element) {
  const values = {};
  for (const input of element.querySelectorAll("input, select, textarea")) {
    const value = settings.has(input) && !input.disabled ? valueOf(input) : undefined;
    if (value !== undefined) values[settings.get(input).name] = value;
  }
  return values;
}

function chooser(setting) {
  const values = setting.enum ?? [true, false];
  const select = make("select");
  if (!setting.required) select.append(new Option(`default: ${said(setting.default)}`, ""));
  for (const value of values) select.append(new Option(said(value), String(value)));
  return select;
}

function entry(setting) {
  const element = setting.type === "texts" ? "textarea" : "input";
  const input = make(element, { required: setting.required, autocomplete: "off", spellcheck: false });
  if (!setting.required) input.placeholder = said(setting.default);
  if (setting.type === "integer" || setting.type === "number") {
    input.type = "number";
    input.inputMode = setting.type === "integer" ? "numeric" : "decimal";
    input.step = setting.type === "integer" ? 1 : "any";
    if (setting.minimum !== undefined) input.min = setting.minimum;
    if (setting.maximum !== undefined) input.max = Math.min(setting.maximum, Number.MAX_SAFE_INTEGER);
  }
  return input;
}

function said(value) {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.length === 0) return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}
