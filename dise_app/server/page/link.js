// The form as a URL fragment, which browsers do not send to servers, and back. It never holds the key.

/** Return the fragment of a form as it is filled in. */
export function fragmentOf(form) {
  const said = new URLSearchParams({ mode: form.dataset.mode });
  for (const { name, value, disabled } of form.elements) {
    if (name && value !== "" && !disabled) said.append(name, value);
  }
  return said.toString();
}

/** Fill in the form, and return what it has no place for. setTexts: makes the fields of the texts to score. */
export function restore(form, fragment, setTexts) {
  const said = new URLSearchParams(fragment);
  setTexts(said.getAll("text"));
  said.delete("text");
  said.delete("mode");
  const unknown = [];
  // A choice brings the fields of its settings, so choices come first.
  const isChoice = ([name]) => form.elements.namedItem(name)?.tagName === "SELECT";
  for (const pair of [...said].filter(isChoice)) fill(form, pair, unknown);
  for (const pair of [...said].filter((each) => !isChoice(each))) fill(form, pair, unknown);
  return unknown;
}

function fill(form, [name, value], unknown) {
  const field = form.elements.namedItem(name);
  if (!field?.name || field.disabled) {
    unknown.push(name);
    return;
  }
  field.value = value;
  if (field.value !== value) {
    unknown.push(`${name} ${value}`);
    field.value = "";
  }
  field.dispatchEvent(new Event("change"));
}
