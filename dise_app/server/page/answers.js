// Finished answers and scored texts, each with its confidence; several can be compared.

import { $, copyButton, make, percent, probability } from "./dom.js";
import { markDifferences, shade, tokenBox } from "./tokens.js";

export function clear(title) {
  $("answers").replaceChildren();
  $("answers_title").textContent = title;
  $("answers_section").hidden = true;
  $("compare_label").hidden = true;
}

/**
 * Add an answer: its text, and what the server says of it.
 * onTry: called with a text in which another token stands. onScore: called with the text itself.
 */
export function add(text, said, onTry, onScore) {
  $("answers_section").hidden = false;
  const again = make("button", { type: "button", className: "quiet" }, "Edit and score");
  again.addEventListener("click", () => onScore(text));
  const buttons = make("div", { className: "buttons" }, copyButton("Copy", () => text), again);
  const box = tokenBox(said.tokens, text.length, (changed) => onTry(text, changed));
  const shown = said.fields ? [box, values(said.fields)] : [box];
  $("answers").append(make("li", {}, ...shown, make("div", { className: "below" }, scoreLine(said), buttons)));
  $("compare_label").hidden = $("answers").children.length < 2;
  compare();
}

/** Show the texts side by side, and where each differs from the first, if that is asked for. */
export function compare() {
  const isOn = $("compare").checked && $("answers").children.length > 1;
  $("answers").classList.toggle("columns", isOn);
  $("differs_legend").hidden = !isOn;
  const [first, ...others] = $("answers").querySelectorAll(".text");
  if (first) markDifferences(first, null);
  for (const box of others) markDifferences(box, isOn ? first : null);
}

/** Return a JSON answer as a form: each value in the colour of its score, by its JSON pointer. */
function values(fields) {
  const rows = Object.entries(fields).filter(([, field]) => "value" in field).flatMap(([pointer, field]) => {
    const said = [
      field.forced ? "no other value was valid" : `${percent(probability(field.score))} a token`,
      ...(field.probability === null ? [] : [`likely to be right: ${percent(field.probability)}`]),
      ...(field.abstained ? ["abstained, as it is below the threshold"] : []),
    ].join("; ");
    const kind = field.forced ? "" : shade(field.score), value = JSON.stringify(field.value);
    const shown = make("span", { className: `token ${kind}`, title: said }, value);
    const hint = make("span", { className: "hint" }, said);
    return [make("dt", {}, pointer || "the value"), make("dd", {}, field.abstained ? make("s", {}, shown) : shown, " ", hint)];
  });
  return make("dl", { className: "values" }, ...rows);
}

function scoreLine({ score, written, probability, abstained, uncalibrated, length, revisions }) {
  const line = make("div", { className: "score" });
  if (probability !== null || abstained) line.append(chance(probability, abstained));
  line.append(make("strong", {}, score.value === null ? "no score" : `score ${score.value.toFixed(4)}`));
  line.append(...share(score), `${score.scorer} over ${score.selector}, ${score.num_positions} tokens`);
  if (written !== undefined && written !== null && score.scorer !== "written")
    line.append(`, written ${percent(Math.exp(written))}`);
  if (length) line.append(`, ${length.trace.length} lengths tried, stopped by ${length.stopped_by}`);
  const accepted = (revisions ?? []).filter((revision) => revision.accepted).length;
  if (accepted) line.append(`, revised in ${accepted} round${accepted === 1 ? "" : "s"}`);
  if (uncalibrated) line.append(make("div", { className: "hint" }, `no probability of being right: ${uncalibrated}`));
  return line;
}

// A mean log-probability a token reads more easily as a probability; other scores have no such meaning.
function share({ value, log_likelihood: logLikelihood, perplexity, constraint }) {
  if (constraint === "forced") return ["the constraint forced every token that is selected, "];
  if (perplexity !== undefined && perplexity !== null) return [`perplexity ${perplexity.toFixed(2)}, `];
  if (logLikelihood !== undefined || value === null || value > 0) return [];
  const mean = Math.exp(value), said = "geometric mean of the tokens' probabilities";
  const meter = make("meter", { value: mean, title: said, "aria-label": said });
  return [meter, make("span", { className: "figure", title: said }, percent(mean))];
}

// How likely the answer is right, by the server's calibration, and whether that is too little.
function chance(probability, abstained) {
  const likely = probability === null ? [] : [`likely to be right: ${percent(probability)}`];
  const said = [...likely, ...(abstained ? ["abstained, as it is below the threshold"] : [])].join("; ");
  return make("span", { className: `chance${abstained ? " abstained" : ""}` }, said);
}
