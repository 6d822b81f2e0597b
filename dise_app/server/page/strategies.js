// A picker for each kind of strategy: its name, what it does, and its settings.

import { make } from "./dom.js";
import { field, valuesIn } from "./fields.js";

const SEVERAL = "+";

export class Picker {
  /** option: of the request that takes the name. fallback: what stands for no choice. */
  constructor(option, entries, fallback) {
    this.option = option;
    this.entries = new Map(entries.map((entry) => [entry.name, entry]));
    this.fallback = fallback;
    this.select = make("select", { id: option, name: option });
    this.select.append(new Option(`default: ${fallback.label}`, ""), ...entries.map(choice));
    if (option === "selector") this.select.append(new Option("several, joined by + …", SEVERAL));
    this.about = make("p", { className: "hint" });
    this.settings = make("div", { className: "fields described" });
    const label = make("label", { className: "field" }, make("span", {}, entries[0].kind), this.select);
    this.element = make("fieldset", {}, label, this.about, this.settings);
    if (option !== "scorer" && option !== "selector") this.element.className = "only-write";
    this.select.addEventListener("change", () => this.show());
    this.show();
  }

  get name() {
    return this.select.value || this.fallback.name;
  }

  /** Show what the chosen strategy does, and fields for its settings. */
  show() {
    const entry = this.entries.get(this.name);
    this.about.textContent = this.name === SEVERAL
      ? "Positions that any of them selects, for example first-5+last-10."
      : (entry?.about ?? "").split("\n\n")[0].replaceAll("\n", " ");
    this.settings.replaceChildren(...this.described(entry).map((setting) => this.field(setting)));
  }

  described(entry) {
    if (this.name !== SEVERAL) return entry?.settings ?? [];
    const about = 'The settings of each by its name, as {"answer": {"pattern": "..."}}.';
    return [
      { name: "names", type: "string", required: true, description: "" },
      { name: "settings", type: "json", required: false, default: {}, description: about },
    ];
  }

  field(setting) {
    const label = field(setting, `${this.option}.${setting.name}`);
    if (this.isNumbered && setting.name === "k") label.querySelector("input").value = 10;
    return label;
  }

  /** Whether the chosen selector's name holds its number, as last-K does. */
  get isNumbered() {
    return this.option === "selector" && this.name?.endsWith("-K");
  }

  /** Return what the request says about it; nothing for what is left as it is. */
  request() {
    let values = valuesIn(this.settings), name = this.select.value;
    if (name === SEVERAL) {
      name = values.names;
      values = values.settings ?? {};
    } else if (this.isNumbered) {
      name = `${this.name.slice(0, -1)}${values.k}`;
      delete values.k;
    }
    const said = name ? { [this.option]: name } : {};
    return Object.keys(values).length ? { ...said, [`${this.option}_settings`]: values } : said;
  }

  /** Allow nothing but what the server's calibration was fitted on. */
  lock(name) {
    this.select.replaceChildren(new Option(`${name} (calibrated)`, ""));
    this.select.disabled = true;
    this.fallback = { name, label: name };
    this.show();
    this.settings.replaceChildren();
  }
}

function choice(entry) {
  const option = new Option(entry.is_built_in ? entry.name : `${entry.name} (${entry.plugin})`, entry.name);
  option.disabled = entry.problem !== null;
  option.title = entry.problem ?? "";
  return option;
}
