// The first page: where the table is, what its columns are, whose privacy.

import { $, attempt, change, complain, data, fill, h, later, listing, number, options, post, refuse, say, setText, spoken } from "./common.js";
import { pageLanguage } from "./language.js";
import { ageGroups, cellsOfDays, dateFormat, dayInWords, doubtOfCondition, doubtOfDay, doubtOfNumbers, marksOf, numberMarks, readDay, readNumber, shownNumber, splitNumbers, typedDay, writtenDay, writtenNumber } from "./notation.js";
import { personsKept, refuseFeatures, severalTables, showPersons, toldColumns } from "./persons.js";

const KINDS = [
  ["", "leave out"], ["integer", "whole numbers"], ["number", "numbers"], ["date", "dates"], ["category", "labels"],
  ["boolean", "yes or no"], ["hierarchy", "places in places"], ["measure", "numbers to add up"],
];
const POLICIES = { outside: ["other", "clamp", "drop"], missing: ["other", "drop"] };
const POLICY = { "": "as for all", other: "counted as (other)", clamp: "moved to the nearest cell", drop: "row left out" };
const PARTS = {
  integer: [["min", "From"], ["max", "to"], ["width", "numbers in a cell"], ["edges", "or edges of cells, with commas"]],
  number: [["min", "From"], ["max", "to"], ["width", "width of a cell"], ["edges", "or edges of cells, with commas"]],
};

const START = {
  integer: { min: "", max: "" }, number: { min: "", max: "", width: "" }, date: { min: "", max: "", by: "month" },
  category: { values: "" }, boolean: {}, hierarchy: { values_from: "" },
};
const DOUBTS = {
  decimal: "Semicolons stand between them, as where numbers have decimal commas: say so above if these have, for read plainly they would be missing.",
  sheet: "The workbook has several sheets, and these are the names of the first: name another one above.",
};
const MARKS = ["decimal", "thousands", "delimiter"];

const spec = () => data.spec;
const table = (...keys) => keys.reduce((here, key) => here?.[key] ?? {}, spec());

/** What an edit of one column's field writes. */
function write(name, key, value) {
  change([{ place: ["schema", name, key], value }], () => { told(name); summary(); });
}

function labels(values) {
  if (Array.isArray(values)) return values.map(String).join("\n");
  return Object.entries(values || {}).map(([code, label]) => `${code} = ${label}`).join("\n");
}

function read(text, coded) {
  const lines = text.split("\n").map((l) => l.replace(/\r$/, "")).filter((l) => l.trim());
  if (!coded) return lines.length ? lines : "";
  return Object.fromEntries(lines.map((l) => {
    const at = l.search(/\s*[=\t]\s*/);
    return at < 0 ? [l.trim(), l.trim()] : [l.slice(0, at).trim(), l.slice(at).replace(/^\s*[=\t]\s*/, "").trim()];
  }));
}

const marks = () => marksOf(spec().data);
/** What was typed as one number, as the spec takes it; what is none is sent as it is, and refused there. */
const typedNumber = (text) => number(readNumber(text, marks()) ?? text);
const typedNumbers = (text) => splitNumbers(text, marks()).map(typedNumber);
const showNumbers = (list) => (Array.isArray(list) ? list.map((v) => writtenNumber(v, marks())).join(marks().decimal === "," || marks().thousands === "," ? "; " : ", ") : "");

/** What was understood of a column's numbers and days, beside its fields: as they stand in the spec. */
function understood(name) {
  const given = table(kindOf(name) === "measure" ? "measures" : "schema", name);
  const day = (value) => (readDay(String(value), "") ? dayInWords(value) : null);
  const plain = (value) => (/^[-+]?\d+(\.\d+)?$/.test(String(value)) ? shownNumber(value, marks()) : null);
  const shown = kindOf(name) === "date" ? day : plain;
  const [low, high] = [given.min, given.max].map((v) => (v === undefined || v === "" ? null : shown(v)));
  const list = (key, before) => (Array.isArray(given[key]) && given[key].length ? `${spoken(before)} ${given[key].map((v) => shown(v) ?? v).join("; ")}` : null);
  const width = given.width === undefined || given.width === "" ? null : shown(given.width);
  return [low && high ? `${low} ${spoken("to")} ${high}` : low ? `${spoken("from")} ${low}` : high ? `${spoken("to")} ${high}` : null, width && `${spoken("width")} ${width}`,
    list("edges", "edges at"), list("knots", "cut at")].filter(Boolean).join(", ");
}

/** Numbers that are summed: a range known without looking, and where sums are cut. */
function amounts(name) {
  const given = table("measures", name);
  const field = (key, label, className, value, how) => {
    const saves = later((input) => {
      if (!doubted(input, key)) change([{ place: ["measures", name, key], value: how(input.value.trim()) }], () => { told(name); summary(); });
    });
    return h("label", {}, label, " ", h("input", { id: fieldId(name, key), type: "text", inputMode: "text", autocomplete: "off", className, value, oninput: (event) => saves(event.target) }));
  };
  const end = (text) => (text ? typedNumber(text) : "");
  const knots = (text) => { const list = typedNumbers(text); return list.length ? list : null; };
  const outside = options(h("select", {}), [["", "count as the nearest end"], ["absent", "are left out of sums"]], given.outside === "absent" ? "absent" : "");
  outside.addEventListener("change", () => change([{ place: ["measures", name, "outside"], value: outside.value || null }], () => told(name)));
  return [field("min", "From", "short", writtenNumber(given.min ?? "", marks()), end), field("max", "to", "short", writtenNumber(given.max ?? "", marks()), end),
    field("knots", `sums also cut at, with ${between()}`, "", showNumbers(given.knots), knots), h("label", {}, "Numbers beyond ", outside)];
}

/** What stands between several numbers. */
const between = () => (marks().decimal === "," || marks().thousands === "," ? "semicolons" : "commas");
const fieldId = (name, key) => `${key}-${names().indexOf(name)}`;
/** Whether a list of numbers could be read in two ways; that is said at its field, and nothing is written. */
function doubted(field, key) {
  const wrong = ["edges", "knots"].includes(key) && between() === "semicolons" ? doubtOfNumbers(field.value, marks()) : "";
  refuse(field, wrong && `${wrong}. The spec keeps what it had.`);
  return Boolean(wrong);
}

/** From, to and width, or edges instead of all three: what is typed into the one takes the other out. */
function ranges(name, kind) {
  const given = table("schema", name);
  const inputs = {};
  const save = (key, text) => {
    const typed = text.trim();
    const changes = [{ place: ["schema", name, key], value: !typed ? null : key === "edges" ? typedNumbers(text) : typedNumber(text) }];
    const others = PARTS[kind].map(([k]) => k).filter((k) => (k === "edges") !== (key === "edges"));
    for (const other of others) {
      const now = spec().schema[name][other];
      if (typed && now !== undefined) {
        changes.push({ place: ["schema", name, other], value: null });
        inputs[other].value = "";
      } else if (!typed && key === "edges" && START[kind][other] !== undefined) changes.push({ place: ["schema", name, other], value: "" });
    }
    change(changes, () => { told(name); summary(); });
  };
  return PARTS[kind].map(([key, label]) => {
    const saves = later(() => { if (!doubted(inputs[key], key)) save(key, inputs[key].value); });
    inputs[key] = h("input", {
      id: fieldId(name, key), type: "text", inputMode: "text", autocomplete: "off", className: key === "edges" ? "" : "short",
      value: key === "edges" ? showNumbers(given.edges) : writtenNumber(given[key] ?? "", marks()),
      oninput: () => saves(),
    });
    return h("label", {}, label.replace("commas", between()), " ", inputs[key]);
  });
}

/** What few columns need, folded away until it is said. */
function folded(name, kind) {
  const given = table("schema", name);
  const looks = kind === "category" && given.values === SOUGHT; // what is not shown counts in (other)
  const said = ["outside", "missing", ...(kind === "category" ? ["values_from", "case", "trim"] : [])].some((k) => given[k] !== undefined);
  return h("details", { open: said }, h("summary", {}, kind === "category" ? "Codes, and values that are not declared" : "Values that are not declared"),
    h("div", { className: "fields" }, kind === "category" && !looks ? codes(name) : null, policies(name, kind).slice(looks ? 1 : 0)));
}

/** Places in places: a file with a column for each level, which is public. */
function places(name) {
  const given = table("schema", name);
  if (given.values !== undefined) return h("p", { className: "quiet" }, `What lies in what is listed in the spec file under schema.${name}, and is changed there.`);
  const file = later((text) => write(name, "values_from", text.trim()));
  const levels = later((text) => {
    const list = text.split(",").map((t) => t.trim()).filter(Boolean);
    write(name, "levels", list.length ? list : null);
  });
  return [h("label", {}, "File with a column for each level ", h("input", { type: "text", autocomplete: "off", placeholder: "counties.csv", value: given.values_from ?? "", oninput: (event) => file(event.target.value) })),
    h("label", { className: "wide" }, "Levels, from coarse to fine, with commas; otherwise the file's columns ", h("input", { type: "text", autocomplete: "off", placeholder: "state, county", value: (given.levels || []).join?.(", ") ?? "", oninput: (event) => levels(event.target.value) }))];
}

/** Days from one to another, in cells of a period each. */
function dates(name) {
  const given = table("schema", name);
  const example = h("input", { type: "text", autocomplete: "off", className: "short", placeholder: "28.11.2026", onchange: (event) => {
    const found = dateFormat(event.target.value);
    if (found === null) { refuse(event.target, event.target.value.trim() ? "the day, the month and the year cannot be told apart in this one: take a day after the 12th" : ""); return; }
    refuse(event.target, "");
    change([{ place: ["schema", name, "format"], value: found === "%Y-%m-%d" ? null : found }], () => columns(name));
  } });
  example.id = `example-${names().indexOf(name)}`;
  const format = h("input", { type: "text", autocomplete: "off", className: "short", placeholder: "%d.%m.%Y", value: given.format ?? "",
    oninput: (event) => saved(event.target.value) });
  const saved = later((text) => write(name, "format", text.trim() || null));
  const field = (key, label, placeholder) => {
    const save = later((input) => {
      const typed = input.value.trim(), declared = spec().schema[name].format;
      const doubt = typed ? doubtOfDay(typed, declared) : "";
      refuse(input, doubt && `${doubt}. The spec keeps what it had.`);
      if (doubt) return;
      const found = typedDay(typed, declared);
      if (found?.format) format.value = found.format;
      moveEnd(name, key, found?.day ?? "", found?.format);
    });
    return h("label", {}, label, " ", h("input", { type: "text", autocomplete: "off", className: "short", placeholder,
      value: writtenDay(given[key] ?? "", given.format), oninput: (event) => save(event.target) }));
  };
  const by = options(h("select", {}), ["day", "week", "month", "quarter", "year"].map((p) => [p, p]), given.by ?? "day");
  by.addEventListener("change", () => write(name, "by", by.value));
  const grouped = Array.isArray(given.starts);
  return [field("min", "From", writtenDay("2020-01-01", given.format)), field("max", "to", writtenDay("2026-12-31", given.format)), grouped ? null : h("label", {}, "a cell for each ", by),
    h("label", {}, "written as year-month-day or ", format), h("label", {}, "or type a day as the table writes it ", example), ages(name)];
}

/**
 * Another end of a range of days, and how it was written where nothing said so yet; where cells begin on given days, what
 * the cell at that end is called moves along.
 */
function moveEnd(name, key, value, format) {
  const given = table("schema", name);
  const changes = [{ place: ["schema", name, key], value }];
  if (format) changes.push({ place: ["schema", name, "format"], value: format });
  if (Array.isArray(given.starts) && given.categories && readDay(value, "")) {
    const [before, after] = [cellsOfDays(given), cellsOfDays({ ...given, [key]: value })];
    const kept = Object.entries(given.categories).map(([cell, text]) => [before.includes(cell) ? after[before.indexOf(cell)] : cell, text]);
    changes.push({ place: ["schema", name, "categories"], value: Object.fromEntries(kept) });
  }
  change(changes, () => { told(name); summary(); });
}

/** Groups by age of a date of birth: on a day, each age is a cut between days of birth. */
function ages(name) {
  const given = table("schema", name);
  const i = names().indexOf(name);
  const day = h("input", { id: `ages-day-${i}`, type: "text", autocomplete: "off", className: "short", placeholder: writtenDay("2025-12-31", given.format) });
  const list = h("input", { id: `ages-${i}`, type: "text", autocomplete: "off", placeholder: "18; 30; 45; 65" });
  const make = () => {
    const declared = spec().schema[name].format;
    const on = typedDay(day.value, declared)?.day;
    const years = list.value.split(/[;,\s]+/).filter(Boolean).map(Number).filter((age) => age !== 0); // the youngest begin at 0 by themselves
    refuse(day, doubtOfDay(day.value, declared));
    const fine = years.length > 0 && years.every((age) => Number.isInteger(age) && age > 0 && age < 120) && new Set(years).size === years.length;
    refuse(list, fine ? "" : "ages are whole numbers of years below 120, such as 18; 30; 45; 65");
    if (!on || !fine) return;
    const found = ageGroups(on, years, readDay(String(spec().schema[name].min ?? ""), "") ?? undefined);
    const called = Object.fromEntries(cellsOfDays(found).map((cell, j) => [cell, found.texts[j]]).reverse()); // the youngest first, as pages have them then
    change([{ place: ["schema", name, "min"], value: found.min }, { place: ["schema", name, "max"], value: found.max }, { place: ["schema", name, "by"], value: null },
      { place: ["schema", name, "starts"], value: found.starts }, { place: ["schema", name, "categories"], value: called }], () => columns(name));
  };
  const back = () => change([{ place: ["schema", name, "starts"], value: null }, { place: ["schema", name, "categories"], value: null }, { place: ["schema", name, "by"], value: "year" }], () => columns(name));
  const on = Array.isArray(given.starts);
  return h("details", { className: "wide ages", open: on }, h("summary", {}, "Groups by age, of a date of birth"),
    on ? h("p", { className: "quiet" }, `Groups: ${(given.categories ? Object.keys(given.categories) : cellsOfDays(given)).map((cell) => given.categories?.[cell]?.[pageLanguage()] ?? given.categories?.[cell]?.en ?? cell).join("; ")}. Pages call them so in their language; conditions name days of birth.`) : null,
    h("div", { className: "fields" }, h("label", {}, "Age in years on the day ", day), h("label", {}, "groups begin at the ages ", list),
      h("button", { type: "button", id: `ages-make-${i}`, onclick: make }, "Make the groups"), on ? h("button", { type: "button", onclick: back }, "Cells of a year instead") : null));
}

const isCoded = (values) => values !== undefined && !Array.isArray(values) && values !== "";

const MOST_LINES = 18; // of a box of labels: a third of a screen; more scroll

const SOUGHT = "discover"; // in place of labels that nobody listed

/** Labels that nobody listed: the share of the budget that finds them, and how many are shown at most. */
function sought(name) {
  const box = h("input", { type: "checkbox", checked: table("schema", name).values === SOUGHT, onchange: (event) => {
    const on = event.target.checked;
    const given = table("schema", name);
    const changes = [{ place: ["schema", name, "values"], value: on ? SOUGHT : "" }];
    for (const key of ["values_from", "case", "outside"]) if (on && given[key] !== undefined) changes.push({ place: ["schema", name, key], value: null });
    for (const key of ["discover", "most", "prefixes", "columns"]) if (!on && given[key] !== undefined) changes.push({ place: ["schema", name, key], value: null });
    // half of delta is set aside for labels that one person alone has
    const { delta, thresholds } = table("privacy");
    if (on && delta !== undefined && thresholds === undefined) changes.push({ place: ["privacy", "thresholds"], value: number(Number(delta) / 2) });
    change(changes, () => columns(name));
  } });
  return h("label", { className: "choice" }, box, " nobody listed them: look which occur");
}

function searching(name) {
  const given = table("schema", name);
  const field = (key, label, value, put) => {
    const save = later((text) => write(name, key, text.trim() ? number(put(text.trim())) : null));
    return h("label", {}, label, " ", h("input", { type: "text", inputMode: "decimal", autocomplete: "off", className: "short", value, oninput: (event) => save(event.target.value) }));
  };
  const percent = (text) => (Number.isFinite(Number(text)) ? String(Number((Number(text) / 100).toPrecision(12))) : text);
  return [sought(name), field("discover", "Share of the budget that finds them, in %", String(Number((100 * Number(given.discover ?? 0.2)).toPrecision(6))), percent),
    field("most", "shown at most", given.most ?? "1000", (text) => text), together(name)];
}

/** Labels of several columns: this one's and those named here, read together. */
function together(name) {
  const others = (table("schema", name).columns ?? []).filter((column) => column !== name);
  const save = later((text) => {
    const named = text.split(",").map((part) => part.trim()).filter(Boolean);
    write(name, "columns", named.length ? [name, ...named] : null);
  });
  return h("label", {}, "together with the labels of ", h("input", { type: "text", autocomplete: "off", value: others.join(", "), oninput: (event) => save(event.target.value) }));
}

function categories(name) {
  const given = table("schema", name);
  if (given.values === SOUGHT) return searching(name);
  const fit = () => { text.rows = Math.min(MOST_LINES, Math.max(3, text.value.split("\n").length + 1)); };
  const text = h("textarea", { spellcheck: false, value: labels(given.values || []), oninput: fit });
  fit();
  const saves = later(() => {
    const changes = [{ place: ["schema", name, "values"], value: read(text.value, isCoded(spec().schema[name].values)) }];
    if (spec().schema[name].values_from !== undefined && text.value.trim()) changes.push({ place: ["schema", name, "values_from"], value: null });
    change(changes, () => { told(name); summary(); });
  });
  text.addEventListener("input", saves);
  return [h("label", { className: "wide" }, isCoded(given.values) ? "Codes and labels, as code = label, one on a line " : "Labels, one on a line ", text), sought(name)];
}

function codes(name) {
  const given = table("schema", name);
  const box = h("input", { type: "checkbox", checked: isCoded(given.values), onchange: () => {
    const lines = labels(spec().schema[name].values || []);
    change([{ place: ["schema", name, "values"], value: read(lines, box.checked) }], () => columns(name));
  } });
  const file = h("input", {
    type: "text", value: given.values_from ?? "", autocomplete: "off", placeholder: "codes.csv",
    onchange: (event) => {
      const value = event.target.value.trim() || null;
      const changes = [{ place: ["schema", name, "values_from"], value }];
      if (value) changes.push({ place: ["schema", name, "values"], value: null });
      change(changes, () => columns());
    },
  });
  const either = (key, on, text) => h("label", { className: "choice" }, h("input", { type: "checkbox", checked: given[key] === on,
    onchange: (event) => write(name, key, event.target.checked ? on : null) }), text);
  return [h("label", { className: "choice" }, box, " labels have codes"), h("label", {}, "From a file of codes ", file),
    either("case", "ignore", " capitals make no difference"), either("trim", true, " blanks around make no difference")];
}

function policies(name, kind) {
  const given = table("schema", name);
  return Object.entries(POLICIES).map(([policy, all]) => {
    const allowed = ["integer", "number", "date"].includes(kind) ? all : all.filter((p) => p !== "clamp");
    const select = options(h("select", {}), ["", ...allowed].map((p) => [p, POLICY[p]]), given[policy] ?? "");
    select.addEventListener("change", () => write(name, policy, select.value || null));
    return h("label", {}, policy === "outside" ? "Not declared " : "Missing ", select);
  });
}

const kindOf = (name) => (spec().measures?.[name] ? "measure" : table("schema", name).type ?? "");

function kindChosen(name, kind) {
  const left = kindOf(name) === "measure" ? "measures" : "schema";
  const into = kind === "measure" ? "measures" : "schema";
  const value = kind === "measure" ? { min: "", max: "" } : { type: kind, ...START[kind] };
  const last = left === "measures" && Object.keys(spec().measures).length === 1; // a table without entries leaves the file
  const changes = left === into && kind ? [] : [{ place: last ? [left] : [left, name], value: null }];
  if (kind) changes.push({ place: [into, name], value });
  return change(changes, () => columns(kind ? name : undefined));
}

function column(name, i) {
  const kind = kindOf(name);
  const select = options(h("select", { "aria-label": `Kind of ${name}` }), KINDS, kind);
  select.addEventListener("change", () => kindChosen(name, select.value));
  const fields = PARTS[kind] ? ranges(name, kind) : kind === "category" ? categories(name) : kind === "hierarchy" ? places(name) : kind === "date" ? dates(name) : kind === "measure" ? amounts(name) : [];
  return h("div", { className: kind ? "column" : "column off", role: "group", "aria-labelledby": `column-${i}` },
    h("div", { className: "head" }, h("h3", { id: `column-${i}` }, name), select),
    kind ? h("div", { className: "fields" }, fields) : null,
    kind && kind !== "measure" ? folded(name, kind) : null,
    h("p", { className: "understood", "data-understood": name }),
    h("p", { className: "told quiet", "data-column": name }),
  );
}

function told(name) {
  const place = [...document.querySelectorAll("[data-column]")].find((p) => p.dataset.column === name);
  const found = data.columns[name];
  if (!place) return;
  const meant = understood(name);
  fill(place.previousElementSibling, meant ? `Understood: ${meant}.` : null);
  place.className = found?.error ? "told problem" : "told quiet";
  if (!found) setText(place, "");
  else if (found.error) setText(place, found.error);
  else if (found.blank) setText(place, `still blank: ${found.blank.split(", ").map(spoken).join(", ")}`);
  else if (data.absent?.includes(name)) {
    place.className = "told problem";
    setText(place, "The table has no column called so.");
  } else if (found.search) setText(place, found.search);
  else if (found.range) setText(place, `added up, from ${found.range}`);
  else setText(place, `${spoken(found.cells.toLocaleString("en-US"))} ${spoken(found.cells === 1 ? "cell" : "cells")}: ${found.labels.map(spoken).join(" · ")}`);
}

function names() {
  return [...new Set([...(data.header || []), ...toldColumns(), ...Object.keys(spec().schema || {}), ...Object.keys(spec().measures || {})])];
}

function columns(focus) {
  fill($("columns"), names().map(column));
  names().forEach(told);
  $("find-field").hidden = names().length <= MANY;
  found();
  if (typeof focus === "string") {
    const place = [...document.querySelectorAll("[data-column]")].find((p) => p.dataset.column === focus);
    place?.parentElement.querySelector(".fields input, .fields textarea")?.focus();
  }
  summary();
}

const MANY = 20; // columns that are looked through without a search
function found() {
  const wanted = $("find").value.trim().toLowerCase();
  for (const one of $("columns").children) one.hidden = Boolean(wanted) && !one.querySelector("h3").textContent.toLowerCase().includes(wanted);
}

function summary() {
  const known = Object.entries(data.columns).filter(([, c]) => c.mock);
  $("mock-section").hidden = known.length === 0;
  const rows = known.length ? known[0][1].mock.map((_, i) => known.map(([, c]) => c.mock[i])) : [];
  fill($("mock"), listing(known.map(([n]) => n), rows));
  setText($("size"), data.cells ? `${known.length} columns; ${data.cells} combinations of cells.${data.measures?.length ? ` ${spoken("Added up:")} ${data.measures.map(spoken).join("; ")}.` : ""}` : "");
  const early = data.problem && data.at === null && !/queries|\[\[queries\]\]/.test(data.problem);
  say(early ? `Still to do: ${(data.todo ?? data.problem).split("; ").map(spoken).join("; ")}` : "");
  // kept all the same: what they lack may be typed next
  const places = { rows: "privacy.rows_per_person", once: "privacy.once_per", group: "privacy.rows_per_group", each: "stream.periods_per_person" };
  for (const [id, place] of Object.entries(places)) {
    const said = data.todo?.match(/^([a-z_.]+?)(\.\d+)?: (.*)$/s); // a number is that of a text in a list
    refuse($(id), said?.[1] === place ? said[3] : "");
  }
  refuseFeatures(data.todo);
  const person = table("privacy").person;
  refuse($("person"), person && data.absent?.includes(person) ? `The table has no column called ${person}.` : "");
}

function show() {
  if (data.broken) { complain(data.broken); return; }
  $("source").value = table("data").source ?? "";
  $("public-name").value = table("data").table ?? "";
  for (const id of [...MARKS, "encoding", "sheet"]) $(id).value = table("data")[id] ?? "";
  $("written").open = [...MARKS, "encoding", "sheet"].some((id) => table("data")[id] !== undefined);
  $("impossible").value = (table("domain").impossible ?? []).join("\n");
  for (const policy of ["outside", "missing"]) $(policy).value = table("schema_defaults")[policy] ?? "";
  for (const radio of document.getElementsByName("neighbours")) radio.checked = radio.value === table("privacy").neighbours;
  $("person").value = table("privacy").person ?? "";
  $("rows").value = table("privacy").rows_per_person ?? "";
  $("once").value = [table("privacy").once_per ?? []].flat().join(", ");
  $("group").value = table("privacy").rows_per_group ?? "";
  $("periods").value = table("stream").periods ?? "";
  $("each").value = table("stream").periods_per_person ?? "";
  const known = Array.isArray(spec().public) ? spec().public : [];
  yearly();
  $("known").hidden = known.length === 0;
  showPersons(persons);
  if (known.length) setText($("known"), `Known from elsewhere, and changed in the spec file alone: ${known.map((t) => (t.table || []).join(" × ") || "the number of records").join("; ")}.`);
  columns();
}

const persons = Object.assign(() => summary(), { columns: () => columns(), again: () => show() });
personsKept(persons);
const kept = (id, place, how = (t) => t) => $(id).addEventListener("change", (event) => {
  const text = event.target.value.trim();
  change([{ place, value: text ? how(text) : null }], summary);
});

$("impossible").addEventListener("change", (event) => {
  const value = event.target.value.split("\n").map((t) => t.trim()).filter(Boolean);
  const doubt = value.map((text) => doubtOfCondition(text, marks())).find(Boolean);
  refuse(event.target, doubt ? `${doubt}. The spec keeps what it had.` : "");
  if (doubt) return;
  change([value.length ? { place: ["domain", "impossible"], value } : { place: ["domain"], value: null }], summary, { field: event.target, about: "domain.impossible" });
});
kept("source", ["data", "source"]);
kept("encoding", ["data", "encoding"]);
kept("sheet", ["data", "sheet"]);
for (const mark of MARKS) {
  $(mark).addEventListener("change", (event) => change([{ place: ["data", mark], value: event.target.value || null }], () => columns()));
}
kept("public-name", ["data", "table"]);
kept("person", ["privacy", "person"]);
kept("rows", ["privacy", "rows_per_person"], number);
kept("group", ["privacy", "rows_per_group"], number);
$("once").addEventListener("change", () => {
  const names = $("once").value.split(",").map((t) => t.trim()).filter(Boolean);
  const places = [{ place: ["privacy", "once_per"], value: names.length ? names : null }];
  if (!names.length) {
    $("group").value = "";
    places.push({ place: ["privacy", "rows_per_group"], value: null });
  }
  change(places, summary);
});
$("periods").addEventListener("change", () => {
  const text = $("periods").value.trim();
  if (!text) $("each").value = "";
  change([text ? { place: ["stream", "periods"], value: text === "unknown" ? text : number(text) } : { place: ["stream"], value: null }], summary, { field: $("periods"), about: "stream.periods" });
});
kept("each", ["stream", "periods_per_person"], number);
for (const policy of ["outside", "missing"]) {
  $(policy).addEventListener("change", (event) => change([{ place: ["schema_defaults", policy], value: event.target.value }], () => { names().forEach(told); summary(); }));
}
for (const radio of document.getElementsByName("neighbours")) {
  radio.addEventListener("change", () => change([{ place: ["privacy", "neighbours"], value: radio.value }], summary));
}
$("read-names").addEventListener("click", async () => {
  const place = $("read-names");
  if (!severalTables()) await change([{ place: ["data", "source"], value: $("source").value.trim() || "" }]);
  const found = await attempt(place, () => post("names", { version: data.version }));
  if (!found) return;
  Object.assign(data, found);
  columns();
  if (found.doubt) $("written").open = true;
  say([`${found.header.length} names were read, and no row. Choose the kind of each that is asked about.`, DOUBTS[found.doubt]].filter(Boolean).join(" "));
});
$("find").addEventListener("input", found);
$("number-example").addEventListener("change", (event) => {
  const found = numberMarks(event.target.value);
  const blank = !event.target.value.trim();
  refuse(event.target, found || blank ? "" : "whether a mark stands before decimals or between thousands cannot be told: take one such as 1.234,50");
  if (!found) return;
  for (const mark of ["decimal", "thousands"]) $(mark).value = found[mark] ?? "";
  change(["decimal", "thousands"].map((mark) => ({ place: ["data", mark], value: found[mark] })), () => columns());
});
$("year").addEventListener("submit", async (event) => {
  event.preventDefault();
  const delta = $("each-delta").value.trim();
  const key = eachKey();
  const stated = (amount, small) => ({ [key]: amount, ...(key === "epsilon" && small ? { delta: small } : {}) });
  const total = await attempt($("total"), () => post("year", { budget: stated($("each-amount").value.trim(), delta), releases: Number($("times").value) }));
  if (!total) return;
  const make = h("button", { type: "button", className: "small", onclick: async () => {
    const made = await attempt($("total"), () => post("ledger", { budget: stated(total.budget.parameter, total.budget.delta), table: table("data").table ?? null }));
    if (made) fill($("total"), `${total.text} The ledger is made; it pays for all of them.`);
  } }, "Make the ledger with this total");
  fill($("total"), `${total.text} `, make);
});
/** In what the spec states its budget; epsilon where it does not yet. */
function eachKey() {
  return ["rho", "mu"].find((key) => table("privacy")[key] !== undefined) ?? "epsilon";
}
function yearly() {
  const kept = table("privacy");
  $("each-name").textContent = { rho: "ρ", mu: "μ", epsilon: "ε" }[eachKey()];
  $("each-amount").value = kept[eachKey()] || "1";
  $("each-delta-field").hidden = eachKey() !== "epsilon";
  $("each-delta").value = kept.epsilon ? kept.delta ?? "" : "1e-6";
}
$("add-column").addEventListener("click", () => {
  const name = $("new-column").value.trim();
  if (!name) return;
  $("new-column").value = "";
  change([{ place: ["schema", name], value: { type: "category", values: "" } }], () => columns(name));
});
$("import").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  const text = await file.text();
  const found = await attempt($("columns"), () => post("import", { version: data.version, text }));
  event.target.value = "";
  if (found) { Object.assign(data, found); show(); say("Imported; say what goes for values that it does not declare."); }
});
show();
