// node calculate.js CALC.JS: reads one JSON object on stdin, answers one on stdout.
"use strict";
const fs = require("fs"), path = require("path");
const Calc = require(process.argv[2]);

async function book(folder) {
  const site = JSON.parse(fs.readFileSync(path.join(folder, "site.json"), "utf8")), tables = [];
  for (const release of site.releases) {
    const found = [];
    for (const entry of release.tables) {
      const unpack = (file) => Calc.unpack(fs.readFileSync(path.join(folder, file))), tilts = {};
      for (const [axis, file] of Calc.tilted(entry, release)) tilts[axis] = await unpack(file);
      found.push(Calc.table(entry, await unpack(entry.file), site.attributes, release, tilts));
    }
    tables.push(found);
  }
  return tables;
}
const sum = (tables, terms) => terms.map(([r, t, cells, w]) => Calc.Linear.of(tables[r][t], cells, cells.map(() => w)))
  .reduce((a, b) => a.plus(b));
const KINDS = { linear: (z, a) => a.answer(z), ratio: (z, a, b) => Calc.ratio(a, b, z), shares: (z, a, b, c, d) => Calc.differenceOfRatios(a, b, c, d, z) };
function tried(f) {
  try { return f(); } catch (reason) {
    if (reason instanceof Calc.Refused) return { refused: reason.message };
    throw reason;
  }
}
async function main() {
  const asked = JSON.parse(fs.readFileSync(0, "utf8")), tables = await book(asked.folder), z = asked.z;
  const answers = (asked.expressions || []).map(([kind, ...forms]) => tried(() => KINDS[kind](z, ...forms.map((f) => sum(tables, f)))));
  const values = tables.map((all) => all.map((t) => Array.from(t.value)));
  // redraws of one table's values: what is asked, again and again
  const again = (asked.draws || []).map((draw) => {
    const old = tables[0][asked.redrawn];
    tables[0][asked.redrawn] = { ...old, value: draw, raw: draw };
    return asked.repeated.map(([kind, ...forms]) => tried(() => KINDS[kind](z, ...forms.map((f) => sum(tables, f)))));
  });
  const ranks = (asked.ranked || []).map((draw) => {
    const old = { ...tables[0][asked.redrawn], value: draw, raw: draw };
    return Calc.ranks(draw.map((_, i) => Calc.Linear.of(old, [i])), asked.together);
  });
  process.stdout.write(JSON.stringify({ answers, values, again, ranks }));
}
main();
