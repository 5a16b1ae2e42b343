// Several tables whose rows belong to persons: what is read of each, what a person's rows tell, and what is counted.

import { $, change, data, fill, h, later, number, options, refuse } from "./common.js";
import { marksOf, readNumber, splitNumbers, writtenNumber } from "./notation.js";

const NOTATION = ["decimal", "thousands", "delimiter", "encoding", "sheet"];
const people = () => data.spec.people;
const rows = () => people()?.rows ?? {};
const lines = (text) => text.split("\n").map((l) => l.trim()).filter(Boolean);
const list = (text) => { const found = text.split(",").map((t) => t.trim()).filter(Boolean); return found.length ? found : null; };
const pairs = (text) => lines(text).map((l) => { const at = l.indexOf("="); return at < 0 ? [l, ""] : [l.slice(0, at).trim(), l.slice(at + 1).trim()]; });
const table = (entries) => (entries.length ? Object.fromEntries(entries) : null);

/** Whether there are several tables. */
export const severalTables = () => people() !== undefined;

/** The names of the columns that are told of persons. */
export const toldColumns = () => Object.keys(people()?.columns ?? {});

/** How the columns of one table are read: those that are no texts. Its place is under [people]. */
function read(place, given, name, then) {
  const about = ["people", ...place].join(".");
  const put = (key, value, field) => change([{ place: ["people", ...place, key], value }], then, field && { field, about: `${about}.${key}` });
  const id = (key) => `${name}-${key}`;
  const dates = given.dates ?? [];
  const text = (key, label, value, placeholder) => h("label", {}, label, " ", h("input", { id: id(key), type: "text", autocomplete: "off", spellcheck: false, placeholder, value,
    onchange: (event) => put(key, list(event.target.value), event.target) }));
  const marks = marksOf(given);
  const semicolons = marks.decimal === "," || marks.thousands === ",";
  const spans = h("textarea", { id: id("numbers"), rows: 2, spellcheck: false, placeholder: `cost = ${["0", "10000", "0.01"].map((v) => writtenNumber(v, marks)).join(semicolons ? "; " : ", ")}`,
    value: Object.entries(given.numbers ?? {}).map(([n, v]) => `${n} = ${[v].flat().map((one) => writtenNumber(one, marks)).join(semicolons ? "; " : ", ")}`).join("\n"),
    onchange: () => put("numbers", table(pairs(spans.value).map(([n, v]) => [n, splitNumbers(v, marks).map((t) => number(readNumber(t, marks) ?? t))])), spans) });
  const written = Array.isArray(dates) ? text("dates", "Columns of dates, with commas", dates.join(", "), "date")
    : h("p", { className: "quiet" }, `How the dates ${Object.keys(dates).join(", ")} are written stands in the spec file, and is changed there.`);
  const order = h("input", { id: id("order"), type: "text", autocomplete: "off", className: "short", value: given.order ?? "",
    onchange: (event) => put("order", event.target.value.trim() || null, event.target) });
  return [h("div", { className: "fields" }, written, h("label", {}, "Of several, rows go by ", order),
    text("booleans", "Columns of yes or no, with commas", (given.booleans ?? []).join(", "), "urgent")),
    h("label", { className: "wide" }, "Columns of numbers, one on a line: name = least, greatest, unit; others are texts ", spans)];
}

/** One table of rows. */
function entry(name, then) {
  const given = rows()[name];
  const put = (key, value) => change([{ place: ["people", "rows", name, key], value }], then);
  const source = later((text) => put("source", text.trim()));
  const takeOut = () => {
    const last = Object.keys(rows()).length === 1; // a table without entries leaves the file
    const counted = people().joined === name ? ["joined", "unmatched"].map((k) => ({ place: ["people", k], value: null })) : [];
    change([...counted, { place: last ? ["people", "rows"] : ["people", "rows", name], value: null }], then.again);
  };
  return h("div", { className: "entry", role: "group", "aria-label": `Table ${name}` },
    h("div", { className: "head" }, h("h3", {}, name), h("button", { type: "button", className: "small", onclick: takeOut }, "Take out")),
    h("div", { className: "fields" },
      h("label", {}, "File or address ", h("input", { id: `${name}-source`, type: "text", spellcheck: false, autocomplete: "off", placeholder: `${name}.csv`, value: given.source ?? "", oninput: (event) => source(event.target.value) })),
      h("label", {}, "Its key, if called otherwise ", h("input", { id: `${name}-key`, type: "text", autocomplete: "off", className: "short", value: given.key ?? "", onchange: (event) => put("key", event.target.value.trim() || null) }))),
    read(["rows", name], given, name, then));
}

/** Show what the spec has. `then` is called after a change; `then.columns` after one of columns, `then.again` where fields come or go. */
export function showPersons(then) {
  const on = people() !== undefined;
  $("several").checked = on;
  $("persons-section").hidden = !on;
  for (const id of ["one-table", "written"]) $(id).hidden = on;
  $("person").readOnly = on;
  if (!on) return;
  $("key").value = people().key ?? "";
  $("persons-source").value = people().source ?? "";
  fill($("persons-read"), people().source === undefined ? [] : read([], people(), "people", then));
  fill($("tables"), Object.keys(rows()).map((name) => entry(name, then)));
  $("features").value = Object.entries(people().columns ?? {}).map(([n, said]) => `${n} = ${said}`).join("\n");
  const each = Object.keys(rows()).map((name) => [name, `the rows of ${name}, each with its person's columns`]);
  options($("counted"), [["", "persons, one row each"], ...each], people().joined ?? "");
  $("unmatched").value = people().unmatched ?? "";
  $("unmatched-field").hidden = !people().joined;
}

/** What is wrong with the features, of what is still to do, told at their field. */
export function refuseFeatures(todo) {
  refuse($("features"), todo?.match(/^people\.columns\S*: (.*)$/s)?.[1] ?? "");
}

/** Write what is chosen and typed here. */
export function personsKept(then) {
  $("several").addEventListener("change", () => {
    const from = data.spec.data ?? {};
    const kept = Object.fromEntries(NOTATION.filter((k) => from[k] !== undefined).map((k) => [k, from[k]]));
    const gone = NOTATION.filter((k) => (people() ?? from)[k] !== undefined);
    const changes = people() === undefined
      ? [...["source", ...gone].map((k) => ({ place: ["data", k], value: null })),
        { place: ["people"], value: { key: data.spec.privacy?.person ?? "", ...(from.source ? { source: from.source, ...kept } : {}) } }]
      : [...gone.map((k) => ({ place: ["data", k], value: people()[k] })), { place: ["data", "source"], value: people().source ?? "" }, { place: ["people"], value: null }];
    change(changes, then.again);
  });
  $("key").addEventListener("change", () => {
    const value = $("key").value.trim();
    change([{ place: ["people", "key"], value }, { place: ["privacy", "person"], value: value || null }], then);
    $("person").value = value;
  });
  $("persons-source").addEventListener("change", () => {
    const value = $("persons-source").value.trim() || null;
    const comes = (value === null) !== (people().source === undefined); // or goes, with what is read of it
    const read = value ? [] : ["dates", "numbers", "booleans", "order", ...NOTATION]; // of what is not there
    change([{ place: ["people", "source"], value }, ...read.map((k) => ({ place: ["people", k], value: null }))], comes ? then.again : then);
  });
  $("add-rows").addEventListener("click", () => {
    const name = $("new-rows").value.trim();
    if (!name || rows()[name]) return;
    $("new-rows").value = "";
    change([{ place: ["people", "rows", name], value: { source: "" } }], () => { then.again(); $(`${name}-source`)?.focus(); });
  });
  $("features").addEventListener("change", () => {
    change([{ place: ["people", "columns"], value: table(pairs($("features").value)) }], then.columns, { field: $("features"), about: "people.columns" });
  });
  $("counted").addEventListener("change", () => {
    const value = $("counted").value || null;
    $("unmatched-field").hidden = !value;
    $("unmatched").value = value ? people().unmatched ?? "" : "";
    change([{ place: ["people", "joined"], value }, ...(value ? [] : [{ place: ["people", "unmatched"], value: null }])], then);
  });
  $("unmatched").addEventListener("change", () => change([{ place: ["people", "unmatched"], value: $("unmatched").value || null }], then));
}
