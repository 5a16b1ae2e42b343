// Completion of conditions: names of attributes, and labels after a comparison. A combobox as ARIA describes it.

import { h } from "./common.js";

// as the grammar writes them: a quote inside is doubled
const quoted = (label) => `'${label.replaceAll("'", "''")}'`;
const named = (name) => (/^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && !/^(and|or|not|in|true|false)$/i.test(name) ? name : `\`${name.replaceAll("`", "``")}\``);
const TOKEN = /(?<space>\s+)|(?<name>`[^`]*(?:``[^`]*)*`|[\p{L}_][\p{L}\p{N}_]*)|(?<text>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*")|(?<op>[<>=!]=?)|(?<mark>[(),])|(?<number>[\p{N}.+-]+)/uy;

/** What may come at the end of a text: "name", "op", "label" of the attribute `of` or "none", and where its word starts. */
function expected(text) {
  let [wants, of, list, at, start] = ["name", null, false, 0, 0];
  let word = false; // whether the caret touches a word that may go on
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text)?.groups;
    if (!found) return { wants, of, start: wants === "label" && !/^['"]/.test(text.slice(at)) ? start : at }; // an open quote
    const said = text.slice(at, TOKEN.lastIndex);
    const glue = said.toLowerCase();
    if (found.space !== undefined) word = false;
    else if (found.name !== undefined && wants === "op" && glue === "not") word = false; // of "not in"
    else if (found.name !== undefined && /^(and|or|not)$/.test(glue)) { wants = "name"; list = false; word = true; start = at; }
    else if (glue === "in" && wants === "op") wants = "list";
    else if (found.name !== undefined && wants === "name") { wants = "op"; of = said.startsWith("`") ? said.slice(1, -1).replaceAll("``", "`") : said; word = !said.startsWith("`"); start = at; }
    else if (found.op !== undefined && wants === "op") { wants = /^[=!]=$/.test(said) ? "label" : "none"; start = TOKEN.lastIndex; }
    else if (said === "(" && wants === "list") { wants = "label"; list = true; start = TOKEN.lastIndex; }
    else if (said === "(" && wants !== "label") wants = "name"; // of "(other)" it is a letter
    else if (said === "," && list) { wants = "label"; start = TOKEN.lastIndex; }
    else if (said === ")") { wants = "done"; list = false; }
    else if (found.text !== undefined || found.number !== undefined) wants = list ? "list" : "done";
    at = TOKEN.lastIndex;
  }
  if (wants === "label") return { wants, of, start: start + /^\s*/.exec(text.slice(start))[0].length };
  return word ? { wants: "name", of, start } : { wants, of, start: text.length };
}

/** What could stand where the caret is: [text, start of the word that it replaces]. */
function offers(text, attributes) {
  const { wants, of, start } = expected(text);
  const typed = text.slice(start).replace(/^[`'"]/, "").toLowerCase();
  if (wants === "name") return attributes.filter((a) => a.name.toLowerCase().includes(typed)).map((a) => [named(a.name), start]);
  const found = wants === "label" && attributes.find((a) => a.name === of);
  if (!found) return [];
  return [...found.labels, ...(found.other ? ["(other)"] : [])].filter((l) => l.toLowerCase().includes(typed)).map((l) => [quoted(l), start]);
}

let made = 0;
export function complete(input, attributes) {
  made += 1;
  const box = h("ul", { role: "listbox", id: `offers-${made}`, className: "offers", hidden: true, "aria-label": "Offered" });
  input.insertAdjacentElement("afterend", box);
  for (const [k, v] of Object.entries({
    role: "combobox", "aria-autocomplete": "list", "aria-controls": box.id, "aria-expanded": "false",
  })) input.setAttribute(k, v);
  let found = [];
  let at = -1;
  const close = () => {
    box.hidden = true; at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (i) => {
    const [text, start] = found[i];
    const caret = input.selectionStart;
    input.value = input.value.slice(0, start) + text + " " + input.value.slice(caret).trimStart();
    input.setSelectionRange(start + text.length + 1, start + text.length + 1);
    close();
    input.focus();
  };
  const show = () => {
    found = offers(input.value.slice(0, input.selectionStart), attributes()).slice(0, 8);
    box.replaceChildren(...found.map(([text], i) => h("li", {
      role: "option", id: `${box.id}-${i}`, "aria-selected": String(i === at),
      onmousedown: (event) => { event.preventDefault(); take(i); },
    }, text)));
    box.hidden = found.length === 0;
    input.setAttribute("aria-expanded", String(!box.hidden));
    if (at >= 0 && at < found.length) input.setAttribute("aria-activedescendant", `${box.id}-${at}`);
  };
  input.addEventListener("input", () => { at = -1; show(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (box.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
      show();
    } else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) { event.preventDefault(); take(at); }
  });
}
