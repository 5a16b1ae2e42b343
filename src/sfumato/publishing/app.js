/* The page: choices, rows, charts and the calculator's sentences. Labels are data: they are only ever text. */
"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const ROWS = 50, DRAWN = 40, GROUPS = 8, CROSSED = 400, GROUPED = 160;
  let site = null;
  const loaded = new Map();
  const turns = { curve: 0, table: 0, result: 0 }; // what was asked last is shown, whatever arrives last

  function make(tag, text, attributes) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    return node;
  }
  /** An English text in the page's language, with values for its names in braces. */
  function say(text, values) {
    const found = (site && site.words[text]) || text;
    return found.replace(/\{(\w+)\}/g, (whole, name) => (values && name in values ? values[name] : whole));
  }
  const called = (name) => (site.attributes[name] && site.attributes[name].heading) || name;
  const label = (text) => (text.length > 160 ? text.slice(0, 159) + "…" : text);

  async function fetched(file, how) {
    if (!loaded.has(file)) {
      loaded.set(file, fetch(file).then((r) => {
        if (!r.ok) throw new Error(`${file} could not be loaded (${r.status})`);
        return r[how]();
      }).catch((reason) => { loaded.delete(file); throw reason; }));
    }
    return loaded.get(file);
  }
  async function table(release, entry) {
    const key = "table " + entry.file;
    if (!loaded.has(key)) {
      const unpacked = (file) => fetched(file, "arrayBuffer").then(Calc.unpack), tilts = {};
      loaded.set(key, Promise.all([
        unpacked(entry.file),
        ...Calc.tilted(entry, release).map(async ([axis, file]) => { tilts[axis] = await unpacked(file); }),
      ]).then(([data]) => Calc.table(entry, data, site.attributes, release, tilts)));
    }
    return loaded.get(key);
  }
  function trouble(reason) {
    const local = location.protocol === "file:";
    const place = get("trouble");
    place.textContent = local ? place.dataset.local : place.dataset.failed + " " + reason.message;
    get("trouble").hidden = false;
  }
  const safely = (f) => (...given) => Promise.resolve().then(() => f(...given)).catch(trouble);

  // -- numbers ------------------------------------------------------------------------------------------
  function shown(value, error) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    let decimals = Number.isInteger(value) ? 0 : 2;
    if (error > 0 && Number.isFinite(error)) decimals = Math.max(0, Math.min(9, 1 - Math.floor(Math.log10(error))));
    return value.toLocaleString(site.language, { minimumFractionDigits: decimals, maximumFractionDigits: decimals })
      .replace(/^-(?=[0.,\s]*$)/, "").replace("-", "−");
  }
  /** The mark of an answer by its relative standard error; "" where it is well known, or where there are no marks. */
  function flag(value, error) {
    const relative = error === 0 ? 0 : value > 0 ? error / value : Infinity;
    return site.flags.filter(([, above]) => !(relative <= above)).reduce((_, [mark]) => mark, "");
  }
  /** Texts of a number and its ends with its mark; two dots where readers are not shown them. */
  const marked = (mark, texts) => (mark === "suppress" ? texts.map(() => "··") : [texts[0] + mark, ...texts.slice(1)]);
  const range = (low, high) => say("{low} to {high}", { low, high });
  const percent = (value, error) => shown(100 * value, 100 * error) + " %";

  // -- charts: the drawing program is loaded with the first chart that comes into view ---------------------
  let drawing = null;
  function drawer() {
    drawing = drawing || new Promise((resolve, reject) => {
      const script = make("script", null, { src: "charts.js" });
      script.onload = resolve;
      script.onerror = () => reject(new Error("charts.js could not be loaded"));
      document.head.append(script);
    });
    return drawing;
  }
  const waiting = new Map(), wantedSpec = new Map(), drawn = new Map();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting && waiting.has(target)) {
        const [spec, text] = waiting.get(target);
        waiting.delete(target);
        drawNow(target, spec, text).catch(trouble);
      }
    }
  }, { rootMargin: "100px" });
  async function drawNow(place, spec, text) {
    await drawer();
    const look = { config: site.config, renderer: "svg", actions: false, defaultStyle: false };
    if (wantedSpec.get(place) !== spec) return;
    const { view } = await vegaEmbed(place, spec, { ...look, ast: true, logLevel: 1, tooltip: { disableDefaultStyle: true }, formatLocale: site.locale.number, timeFormatLocale: site.locale.time });
    place.setAttribute("aria-label", text);
    drawn.set(place, [view, text]);
    if (wantedSpec.get(place) !== spec) place.replaceChildren(); // it was drawn while something else was chosen
  }
  function draw(id, spec, text) {
    const place = get(id);
    wantedSpec.set(place, spec);
    if (!spec) { waiting.delete(place); place.replaceChildren(); return; }
    waiting.set(place, [spec, text]);
    watcher.unobserve(place);
    watcher.observe(place);
  }
  const number = (field, title, more) => ({ field, type: "quantitative", title, ...more });
  const tips = (names) => names.map(([field, title]) => ({ field, title, type: "nominal" }));

  function rows(head, body, caption) {
    const found = make("table"), top = make("tr");
    if (caption) found.append(make("caption", caption));
    for (const [text, kind] of head) top.append(make("th", text, { class: kind || "t", scope: "col" }));
    const all = make("tbody");
    for (const cells of body) {
      const line = make("tr");
      cells.forEach((text, i) => {
        const cell = make("td", null, { class: head[i][1] || "t" });
        cell.append(head[i][1] === "n" ? text : make("bdi", label(text)));
        line.append(cell);
      });
      all.append(line);
    }
    const thead = make("thead");
    thead.append(top);
    found.append(thead, all);
    return found;
  }
  function choose(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => make("option", label(text), { value })));
    if (chosen !== undefined && options.some(([value]) => value === chosen)) select.value = chosen;
  }

  // -- distributions --------------------------------------------------------------------------------------
  const byText = (by) => by.map(called).join(" × ") || say("everybody together");
  function curveChoices() {
    const attributes = [...new Set(site.curves.map((c) => c.attribute))];
    if (!attributes.length) { get("distributions").hidden = true; return; }
    choose(get("curve-attribute"), attributes.map((a) => [a, called(a)]));
    get("curve-attribute").onchange = safely(() => { curveGroups(); return curve(); });
    get("curve-by").onchange = safely(curve);
    curveGroups();
  }
  function curveGroups() {
    const of = site.curves.map((c, i) => [c, String(i)]).filter(([c]) => c.attribute === get("curve-attribute").value);
    choose(get("curve-by"), of.map(([c, i]) => [i, byText(c.by)]));
    if (of.length > 1) get("curve-by").value = of[1][1];
  }
  async function curve() {
    const mine = ++turns.curve, entry = site.curves[Number(get("curve-by").value)];
    const found = await fetched(entry.file, "json");
    if (mine !== turns.curve) return;
    const { quantiles, means, shares, ends } = found, width = entry.by.length;
    const groups = means[0].length, name = (columns, row) => entry.by.map((_, i) => columns[i][row]).join(" · ");
    const told = [];
    for (let g = 0; g < groups; g++) if (means[width][g] !== null) told.push(g);
    const each = quantiles[width].length / groups, at = quantiles[width].slice(0, each);
    const wanted = [0.1, 0.25, 0.5, 0.75, 0.9].map((p) => at.indexOf(p)).filter((i) => i >= 0);
    const head = [...entry.by.map((b) => [called(b)]), [say("Mean"), "n"], ["95 %", "n"]];
    for (const i of wanted) head.push([at[i] === 0.5 ? say("Median") : `${Math.round(100 * at[i])} %`, "n"], ["95 %", "n"]);
    const body = told.map((g) => {
      const [mean, error, low, high] = [0, 1, 2, 3].map((i) => means[width + i][g]);
      const step = Math.max(error ?? 0, (high - low) / 4);
      const line = [...entry.by.map((_, i) => means[i][g]), shown(mean, step), range(shown(low, step), shown(high, step))];
      for (const i of wanted) {
        const [value, from, to] = [1, 2, 3].map((k) => quantiles[width + k][g * each + i]);
        line.push(shown(value), range(shown(from), shown(to)));
      }
      return line;
    });
    const left = groups - told.length, notes = [...new Set(told.map((g) => means[width + 4][g]).filter(Boolean))];
    const said = notes.length ? say(told.length > 1 ? "The mean of {group}: {note}. " : "The mean: {note}. ", { group: name(means, told[0]) || say("everybody"), note: means[width + 4][told[0]] || notes[0] }) : "";
    get("curve-table").replaceChildren(rows(head, body, said + (left ? say("Too few to tell: {left} of {groups} groups.", { left, groups }) : "")));
    if (!shares) { draw("curve-chart", null); return; }
    const values = [];
    for (const g of told.slice(0, GROUPS)) {
      ends.forEach((x, i) => {
        const k = g * ends.length + i;
        values.push({ x, share: shares.share[k], low: shares.low[k], high: shares.high[k], group: label(name(means, g)) });
      });
    }
    const share = { title: say("share of records"), scale: { domain: [0, 1] }, axis: { format: "%", tickCount: 5 } };
    draw("curve-chart", {
      data: { values }, width: "container", height: 260,
      encoding: {
        x: number("x", called(entry.attribute), { scale: { zero: false, nice: false }, axis: { grid: false } }),
        color: entry.by.length
          ? { field: "group", type: "nominal", sort: null, legend: { title: byText(entry.by), columns: 4 } }
          : { value: "var(--series-1)" },
        tooltip: tips([["group", say("group")], ["x", say("up to")], ["share", say("share")], ["low", say("95 % from")], ["high", say("to")]]),
      },
      layer: [
        { mark: { type: "area", opacity: 0.22 }, encoding: { y: number("low", say("share of records"), share), y2: { field: "high" } } },
        { mark: { type: "line", strokeWidth: 2 }, encoding: { y: number("share", say("share of records"), share) } },
      ],
    }, say("Cumulative shares of {attribute}, {groups}", { attribute: called(entry.attribute), groups: byText(entry.by) }));
  }

  // -- tables -----------------------------------------------------------------------------------------------
  const real = (release) => release.tables.filter((t) => t.names.length);
  const same = (a, b) => a.length === b.length && a.every((n) => b.includes(n));
  let names = [], page = 0;
  function tableChoices() {
    const tables = real(site.releases[0]);
    if (!tables.length) { get("tables").hidden = true; return; }
    const attributes = Object.keys(site.attributes).filter((n) => tables.some((t) => t.names.includes(n)));
    names = [...tables.find((t) => t.names.length === Math.min(2, Math.max(...tables.map((u) => u.names.length)))).names];
    get("table-names").replaceChildren(...attributes.map((name) => {
      const box = make("input", null, { type: "checkbox", value: name }), chip = make("label", null, { class: "chip" });
      chip.append(box, make("bdi", label(called(name))));
      box.onchange = safely(() => {
        names = box.checked ? [...names, name] : names.filter((n) => n !== name);
        page = 0;
        return showTable();
      });
      return chip;
    }));
    for (const id of ["table-sort", "table-find", "table-as"]) get(id).oninput = safely(() => { page = 0; return showTable(); });
    get("table-save").onclick = safely(save);
    get("chart-save").onclick = safely(saveChart);
  }
  const entryOf = (release, wanted) => real(release).find((t) => same(t.names, wanted));
  function allowed() {
    const tables = real(site.releases[0]);
    for (const box of get("table-names").querySelectorAll("input")) {
      box.checked = names.includes(box.value);
      const wanted = box.checked ? names : [...names, box.value];
      box.disabled = !box.checked && !tables.some((t) => wanted.every((n) => t.names.includes(n)));
    }
  }
  function texts(found, cell) {
    const out = new Array(found.names.length);
    for (let axis = found.names.length - 1, rest = cell; axis >= 0; axis--) {
      out[axis] = site.attributes[found.names[axis]].labels[rest % found.sizes[axis]];
      rest = Math.floor(rest / found.sizes[axis]);
    }
    return out;
  }
  /** Where readers see a cell: as an office lists its labels, where it lists them all. */
  function placeOf(found, cell) {
    let place = 0, unit = 1;
    for (let axis = found.names.length - 1, rest = cell; axis >= 0; axis--) {
      const at = rest % found.sizes[axis];
      place += unit * (site.attributes[found.names[axis]].places?.[at] ?? at);
      unit *= found.sizes[axis];
      rest = Math.floor(rest / found.sizes[axis]);
    }
    return place;
  }
  function listed(found) {
    const wanted = get("table-find").value.trim().toLowerCase(), how = get("table-sort").value;
    let cells = Array.from(found.value.keys());
    if (wanted) cells = cells.filter((c) => texts(found, c).some((t) => t.toLowerCase().includes(wanted)));
    cells.sort((a, b) => placeOf(found, a) - placeOf(found, b));
    if (how !== "cell") cells.sort((a, b) => (how === "down" ? 1 : -1) * (found.value[b] - found.value[a]));
    return cells;
  }
  async function showTable() {
    allowed();
    const entry = entryOf(site.releases[0], names);
    if (!entry) {
      get("table-told").textContent = names.length ? say("Tick one more: this table was asked for only within larger ones.") : say("Tick an attribute.");
      for (const id of ["table-rows", "table-pages"]) get(id).replaceChildren();
      draw("table-chart", null);
      return;
    }
    const mine = ++turns.table, found = await table(site.releases[0], entry);
    if (mine !== turns.table) return;
    get("table-as").disabled = !(found.names.length > 1 && found.value.length <= CROSSED);
    if (!get("table-as").disabled && get("table-as").value !== "list") return crossed(found, get("table-as").value);
    const cells = listed(found), pages = Math.max(1, Math.ceil(cells.length / ROWS));
    page = Math.min(page, pages - 1);
    const part = cells.slice(page * ROWS, (page + 1) * ROWS);
    const counts = { cells: shown(cells.length), all: shown(found.value.length), page: page + 1, pages: shown(pages) };
    get("table-told").textContent = say(pages > 1 ? "{cells} of {all} cells; page {page} of {pages}. Intervals at 95 %." : "{cells} of {all} cells. Intervals at 95 %.", counts);
    const head = [...found.names.map((n) => [called(n)]), [say("Answer"), "n"], ...(found.projected ? [[say("Before projection"), "n"]] : []),
      [say("95 % from"), "n"], [say("to"), "n"], [say("Standard error"), "n"]];
    const body = part.map((c) => {
      const error = found.error(c), [low, high] = found.interval(c);
      const told = [found.value[c], ...(found.projected ? [found.raw[c]] : []), low, high].map((x) => shown(x, error));
      return [...texts(found, c), ...marked(flag(found.value[c], error), told), shown(error, error)];
    });
    get("table-rows").replaceChildren(rows(head, body));
    const turn = (text, by, off) => {
      const button = make("button", text, { type: "button" });
      button.disabled = off;
      button.onclick = safely(() => { page += by; return showTable(); });
      return button;
    };
    get("table-pages").replaceChildren(...(pages > 1 ? [turn(say("Back"), -1, !page), turn(say("On"), 1, page === pages - 1)] : []));
    const values = part.slice(0, DRAWN).map((c) => {
      const [low, high] = found.interval(c);
      return { cell: label(texts(found, c).join(" · ")), answer: found.value[c], low, high };
    });
    const along = (field) => number(field, say("records"), { axis: { tickCount: 5, format: ",.6~r" } });
    draw("table-chart", values.length ? {
      data: { values }, width: "container", height: { step: 20 },
      encoding: {
        y: { field: "cell", type: "nominal", sort: null, title: null, axis: { ticks: false, domain: false } },
        tooltip: tips([["cell", say("cell")], ["answer", say("answer")], ["low", say("95 % from")], ["high", say("to")]]),
      },
      layer: [
        { mark: { type: "bar", height: { band: 0.62 }, color: "var(--series-1)", opacity: 0.55 }, encoding: { x: along("answer") } },
        { mark: { type: "rule", strokeWidth: 1.5, color: "var(--ink)" }, encoding: { x: along("low"), x2: { field: "high" } } },
      ],
    } : null, say("Answers with intervals: {table}", { table: found.names.map(called).join(" × ") }));
  }
  /** The first attribute down, the others across, with totals; per cents with intervals that know both errors. */
  function crossed(found, per) {
    const down = found.sizes[0], across = found.value.length / down, z = site.multipliers["0.95"];
    const wanted = get("table-find").value.trim().toLowerCase(), how = get("table-sort").value;
    const span = (n, i) => (i < n ? [i] : Array.from({ length: n }, (_, k) => k));
    const sum = (i, j) => Calc.Linear.of(found, span(down, i).flatMap((a) => span(across, j).map((b) => a * across + b)));
    const base = { row: (i) => [i, across], column: (_, j) => [down, j], all: () => [down, across] }[per];
    const all = Array.from({ length: across + 1 }, (_, j) => j);
    /** Of a cell, or of a total, its value with the ends of its interval and its error; null where it cannot be told. */
    function cell(i, j) {
      try {
        if (!base) {
          if (i === down || j === across) return sum(i, j).answer(z);
          const [low, high] = found.interval(i * across + j);
          return { value: found.value[i * across + j], error: found.error(i * across + j), low, high };
        }
        const [k, l] = base(i, j);
        if (k === i && l === j) return { value: 1, error: 0, low: 1, high: 1 };
        const told = Calc.ratio(sum(i, j), sum(k, l), z), clip = (x) => Math.min(1, Math.max(0, x));
        return { ...told, value: clip(told.value), low: clip(told.low), high: clip(told.high) };
      } catch (reason) {
        if (!(reason instanceof Calc.Refused)) throw reason;
        return null;
      }
    }
    const cells = Array.from({ length: down + 1 }, (_, i) => all.map((j) => cell(i, j)));
    // all numbers with as many decimals as show the first figure of half of the middle interval
    const scale = base ? 100 : 1, unit = base ? " %" : "";
    const halves = cells.flat().filter((c) => c && c.high > c.low).map((c) => scale * (c.high - c.low) / 2).sort((a, b) => a - b);
    const size = halves.length ? Math.min(6, Math.max(0, -Math.floor(Math.log10(halves[Math.floor(halves.length / 2)])))) : 0;
    const plain = (x) => shown(scale * x, 10 ** (1 - size));
    function text(c) {
      if (!c) return "–";
      const error = c.error ?? (c.high - c.low) / 4, mark = flag(c.value, error);
      if (mark === "suppress") return "··";
      if (c.low === c.high) return shown(scale * c.value) + unit + mark;
      const [below, above] = [c.value - c.low, c.high - c.value];
      return Math.abs(below - above) <= 0.05 * Math.max(below, above)
        ? `${plain(c.value)}${unit}${mark} ± ${plain((below + above) / 2)}`
        : `${plain(c.value)}${unit}${mark} [${plain(c.low)}; ${plain(c.high)}]`;
    }
    const byPlace = (n, step) => Array.from({ length: n }, (_, i) => i).sort((a, b) => placeOf(found, a * step) - placeOf(found, b * step));
    const columns = byPlace(across, 1), heads = columns.map((j) => texts(found, j).slice(1).join(" · "));
    let lines = byPlace(down, across);
    const name = (i) => (i < down ? texts(found, i * across)[0] : say("Total"));
    if (wanted) lines = lines.filter((i) => name(i).toLowerCase().includes(wanted));
    const totals = new Map(how === "cell" ? [] : lines.map((i) => [i, sum(i, across).value]));
    if (how !== "cell") lines.sort((a, b) => (how === "down" ? 1 : -1) * (totals.get(b) - totals.get(a)));
    const body = [...lines, down].map((i) => [name(i), ...[...columns, across].map((j) => text(cells[i][j]))]);
    get("table-told").textContent = say("Totals are of all cells. Intervals at 95 %; those of per cents know how a cell and its total err together.");
    get("table-rows").replaceChildren(rows([[called(found.names[0])], ...heads.map((h) => [h, "n"]), [say("Total"), "n"]], body));
    get("table-pages").replaceChildren();
    const values = lines.flatMap((i) => columns.map((j) => ({ ...cells[i][j], i, j, names: texts(found, i * across + j).map(label) })))
      .filter((c) => c.value !== undefined && flag(c.value, c.error ?? (c.high - c.low) / 4) !== "suppress")
      .map(({ names: [row, column, ...more], value, low, high }) => ({ row, column, more: more.join(" · "), answer: value, low, high }));
    draw("table-chart", values.length && values.length <= GROUPED && found.sizes[1] <= GROUPS ? grouped(found, values, base) : null,
      say("Answers with intervals: {table}", { table: found.names.map(called).join(" × ") }));
  }
  /** Bars in groups for a second attribute, one picture for each cell of others. */
  function grouped(found, values, share) {
    const title = share ? get("table-as").selectedOptions[0].textContent : say("records");
    const along = (field) => number(field, title, { axis: { tickCount: 5, format: share ? "%" : ",.6~r" } });
    const rows = { field: "row", type: "nominal", sort: null, title: null, axis: { ticks: false, domain: false } };
    const columns = { field: "column", type: "nominal", sort: null };
    const spec = {
      height: { step: Math.max(20, 9 * found.sizes[1]), for: "position" },
      encoding: {
        y: rows, yOffset: columns, color: { ...columns, legend: { title: called(found.names[1]), columns: 3 } },
        tooltip: tips([["row", called(found.names[0])], ["column", called(found.names[1])], ["answer", say("answer")], ["low", say("95 % from")], ["high", say("to")]]),
      },
      layer: [
        { mark: { type: "bar", opacity: 0.55 }, encoding: { x: along("answer") } },
        { mark: { type: "rule", strokeWidth: 1.2, color: "var(--ink)" }, encoding: { x: along("low"), x2: { field: "high" }, color: { value: "var(--ink)" } } },
      ],
    };
    if (found.names.length === 2) return { data: { values }, width: "container", ...spec };
    const facet = { field: "more", type: "nominal", sort: null, title: found.names.slice(2).map(called).join(" · ") };
    return { data: { values }, facet, columns: innerWidth < 700 ? 1 : 3, spec: { ...spec, width: 200 } };
  }
  /** The chart as a file to print: on white, with its title above and the source below. */
  async function saveChart() {
    const [view, title] = drawn.get(get("table-chart")) || [];
    if (!view || !get("table-chart").firstChild) return;
    const light = { ink: "#1b2430", muted: "#56606d", line: "#dde1e6", paper: "#ffffff" }, look = getComputedStyle(document.documentElement);
    const inside = (await view.toSVG()).replace(/var\(--([\w-]+)\)/g, (_, name) => light[name] || look.getPropertyValue(`--${name}`).trim());
    const box = make("div");
    box.innerHTML = inside; // of Vega's own making, whose texts are escaped
    const [width, height] = ["width", "height"].map((n) => Number(box.firstChild.getAttribute(n)));
    const told = (text, y, size) => { const node = make("text", text, { x: 8, y, "font-family": "sans-serif", "font-size": size }); return node.outerHTML; };
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width + 16}" height="${height + 64}"><rect width="100%" height="100%" fill="#fff"/>` +
      `${told(title, 22, 15)}<g transform="translate(8 34)">${inside}</g>${told(site.source, height + 54, 11)}</svg>`;
    handOut(new Blob([svg], { type: "image/svg+xml" }), names.join(".").replace(/[^\w.-]/g, "_") + ".svg");
  }
  function handOut(blob, download) {
    const link = make("a", null, { download });
    link.href = URL.createObjectURL(blob);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
  async function save() {
    const entry = entryOf(site.releases[0], names);
    if (!entry) return;
    const found = await table(site.releases[0], entry);
    // what a spreadsheet would take for a formula begins with an apostrophe
    const field = (text) => {
      const safe = /^[=+\-@\t]/.test(text) && !Number.isFinite(Number(text)) ? "'" + text : text;
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = [[...found.names.map(field), "answer", "standard_error", "low", "high", ...(site.flags.length ? ["flag"] : [])].join(",")];
    for (const c of listed(found)) {
      lines.push([...texts(found, c).map(field), found.value[c], found.error(c), ...found.interval(c),
        ...(site.flags.length ? [flag(found.value[c], found.error(c))] : [])].join(","));
    }
    handOut(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }), found.names.join(".").replace(/[^\w.-]/g, "_") + ".csv");
  }

  // -- calculator ---------------------------------------------------------------------------------------------
  const LETTERS = { share: "AB", ratio: "AB", difference: "AB", shares: "ABCD", count: "A", rank: "A", change: "A", growth: "A" };
  const terms = { A: [], B: [], C: [], D: [] }; // of each letter conditions {name, chosen}
  function kindChanged() {
    get("calc-ranked").hidden = get("calc-kind").value !== "rank";
    get("calc-terms").replaceChildren(...LETTERS[get("calc-kind").value].split("").map(editor));
    return calculate();
  }
  function editor(letter) {
    const box = make("fieldset", null, { class: "term" });
    box.append(make("legend", `${letter}: ${sentence(terms[letter])}`));
    terms[letter].forEach((condition, i) => {
      const line = make("div", null, { class: "condition" });
      const which = make("select", null, { "aria-label": say("{letter}, attribute {number}", { letter, number: i + 1 }) });
      choose(which, attributes().map((n) => [n, called(n)]), condition.name);
      which.onchange = safely(() => { condition.name = which.value; condition.chosen = [0]; return kindChanged(); });
      const labels = site.attributes[condition.name].labels;
      const cells = make("select", null, { multiple: "", size: Math.min(6, labels.length), "aria-label": say("{letter}, cells of {attribute}", { letter, attribute: called(condition.name) }) });
      choose(cells, labels.map((t, k) => [String(k), t]));
      for (const option of cells.options) option.selected = condition.chosen.includes(Number(option.value));
      cells.onchange = safely(() => {
        condition.chosen = Array.from(cells.selectedOptions, (o) => Number(o.value));
        box.querySelector("legend").textContent = `${letter}: ${sentence(terms[letter])}`;
        return calculate();
      });
      const drop = make("button", say("Remove"), { type: "button", "aria-label": say("{letter}: remove {attribute}", { letter, attribute: called(condition.name) }) });
      drop.onclick = safely(() => { terms[letter].splice(i, 1); return kindChanged(); });
      line.append(which, cells, drop);
      box.append(line);
    });
    const text = terms[letter].length ? say("And …") : say("Only those with …");
    const more = make("button", text, { type: "button", "aria-label": say("{text} (a condition on {letter})", { text, letter }) });
    more.onclick = safely(() => {
      const free = attributes().find((n) => !terms[letter].some((c) => c.name === n));
      if (free) terms[letter].push({ name: free, chosen: [0] });
      return kindChanged();
    });
    box.append(more);
    return box;
  }
  const attributes = () => Object.keys(site.attributes);
  function sentence(conditions) {
    if (!conditions.length) return say("everybody");
    return conditions.map(({ name, chosen }) => {
      const labels = chosen.map((i) => label(site.attributes[name].labels[i]));
      const few = labels.length > 4 ? [labels[0], "…", labels[labels.length - 1], say("({number} cells)", { number: labels.length })] : labels;
      return `${called(name)} ${labels.length === 1 ? "=" : say("in")} ${few.join(labels.length > 4 ? " " : ", ")}`;
    }).join(say(" and "));
  }
  /** The smallest table over all these attributes. */
  function holding(release, wanted) {
    const fit = real(release).filter((t) => wanted.every((n) => t.names.includes(n)));
    const size = (t) => t.names.reduce((p, n) => p * site.attributes[n].labels.length, 1);
    return fit.sort((a, b) => size(a) - size(b))[0];
  }
  async function term(release, conditions, along) {
    const wanted = [...new Set([...conditions.map((c) => c.name), ...along])];
    const entry = holding(release, wanted);
    if (!entry) throw new Calc.Refused(say("{attributes} were not measured together", { attributes: wanted.map(called).join(", ") }));
    const found = await table(release, entry);
    const chosen = found.names.map((n) => {
      const named = conditions.filter((c) => c.name === n).map((c) => c.chosen);
      const all = Array.from(site.attributes[n].labels.keys());
      return named.reduce((kept, these) => kept.filter((i) => these.includes(i)), all);
    });
    let cells = [0];
    chosen.forEach((kept, axis) => { cells = cells.flatMap((c) => kept.map((i) => c * found.sizes[axis] + i)); });
    return { found, cells, chosen };
  }
  /** Terms from one table where there is one over all their attributes: then all is known of how they err together. */
  async function sums(release, all) {
    const together = [...new Set(all.flat().map((c) => c.name))];
    const along = holding(release, together) ? together : [];
    return Promise.all(all.map(async (conditions) => {
      const { found, cells } = await term(release, conditions, along);
      return Calc.Linear.of(found, cells);
    }));
  }
  async function calculate() {
    const mine = ++turns.result, out = get("calc-result"), kind = get("calc-kind").value;
    try {
      const nodes = await result(kind, site.multipliers[get("calc-level").value]);
      if (mine === turns.result) out.replaceChildren(...nodes);
    } catch (reason) {
      if (!(reason instanceof Calc.Refused)) throw reason;
      if (mine === turns.result) out.replaceChildren(make("p", say("Not told: {reason}.", { reason: say(reason.message) }), { class: "quiet" }));
    }
  }
  async function result(kind, z) {
    const [now, before] = site.releases, given = LETTERS[kind].split("").map((l) => terms[l]);
    const level = get("calc-level").selectedOptions[0].textContent;
    if (kind === "rank") return ranked(now, given[0]);
    if (kind === "share") given[0] = [...given[0], ...given[1]]; // those of B who are A as well
    const [a, b, c, d] = await sums(now, given);
    if (kind === "count") return told(a.answer(z), shown, level, given);
    if (kind === "difference") return told(a.minus(b).answer(z), shown, level, given);
    if (kind === "shares") return told(Calc.differenceOfRatios(a, b, c, d, z), points, level, given);
    if (kind === "share" || kind === "ratio") {
      return told(Calc.ratio(a, b, z), kind === "share" ? percent : shown, level, given);
    }
    const [old] = await sums(before, given);
    if (kind === "change") return told(a.minus(old).answer(z), shown, level, given);
    const found = Calc.ratio(a, old, z), grown = (x) => x - 1;
    return told({ ...found, value: grown(found.value), low: grown(found.low), high: grown(found.high) }, percent, level, given);
  }
  const points = (value, error) => say("{number} points", { number: shown(100 * value, 100 * error) });
  function told(found, text, level, given) {
    const error = found.error === null ? (found.high - found.low) / 4 : found.error;
    const who = given.map((c, i) => `${"ABCD"[i]}: ${sentence(c)}`).join("; ");
    return [
      make("p", text(found.value, error), { class: "big" }),
      make("p", say(found.error === null
        ? "{level} interval: {low} to {high}; of projected answers no standard error is known"
        : "{level} interval: {low} to {high}; standard error {error}",
      { level, low: text(found.low, error), high: text(found.high, error), error: text(found.error, error) })),
      make("p", who, { class: "quiet" }),
    ];
  }
  async function ranked(release, conditions) {
    const along = get("calc-along").value, labels = site.attributes[along].labels;
    const z = site.together[String(labels.length - 1)];
    if (!z) throw new Calc.Refused(say("{attribute} has too many cells to rank", { attribute: called(along) }));
    const own = conditions.filter((c) => c.name !== along), { found, chosen } = await term(release, own, [along]);
    const all = labels.map((_, i) => {
      let cells = [0];
      chosen.forEach((kept, axis) => {
        const these = found.names[axis] === along ? [i] : kept;
        cells = cells.flatMap((c) => these.map((k) => c * found.sizes[axis] + k));
      });
      return Calc.Linear.of(found, cells);
    });
    const ranks = Calc.ranks(all, z), orderly = Array.from(labels.keys()).sort((i, j) => ranks[i].rank - ranks[j].rank);
    const body = orderly.map((i) => [labels[i], String(ranks[i].rank), range(ranks[i].low, ranks[i].high), shown(ranks[i].value, all[i].answer(1).error)]);
    const box = make("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": say("Ranks") });
    box.append(rows([[called(along)], [say("Rank"), "n"], ["95 %", "n"], [say("Count"), "n"]], body, say("Each interval holds with 95 % for its cell, all its comparisons together.")));
    return [box];
  }

  async function start() {
    site = await fetched("site.json", "json");
    curveChoices();
    tableChoices();
    if (!real(site.releases[0]).length) get("calculator").hidden = true;
    else {
      const pair = holding(site.releases[0], names).names;
      terms.A = [{ name: pair[0], chosen: [0] }];
      if (pair[1]) terms.B = [{ name: pair[1], chosen: [0] }];
      const rankable = attributes().filter((n) => site.together[String(site.attributes[n].labels.length - 1)]);
      choose(get("calc-along"), rankable.map((n) => [n, called(n)]));
      for (const id of ["calc-kind", "calc-level", "calc-along"]) get(id).onchange = safely(kindChanged);
    }
    // what is below the fold waits until somebody looks
    const later = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        later.unobserve(target);
        ({ distributions: safely(curve), tables: safely(showTable), calculator: safely(kindChanged) })[target.id]();
      }
    });
    for (const id of ["distributions", "tables", "calculator"]) if (!get(id).hidden) later.observe(get(id));
    document.documentElement.dataset.ready = "yes";
  }
  safely(start)();
})();
