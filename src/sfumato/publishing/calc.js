/* Arithmetic with answers of a release, as `sfumato.releases.answers` does it: sums of cells, their variances and
   covariances, ratios by Fieller's theorem, differences of ratios, ranks. No page is needed: it runs in node as well. */
"use strict";
const Calc = (() => {
  const SIZE_ERRORS = 5; // least size of a denominator in standard errors, as in Python

  class Refused extends Error {}

  /** The arrays of a table's file: gzip of a line of JSON, then doubles or integers by planes of bytes. */
  async function unpack(buffer) {
    const stream = new Blob([buffer]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const end = bytes.indexOf(10);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
    let place = end + 1;
    const table = { shape: header.shape, range: header.range };
    for (const [name, count, step] of header.parts) {
      const values = new Float64Array(count);
      if (step) {
        const planes = [0, 1, 2, 3].map((i) => bytes.subarray(place + i * count, place + (i + 1) * count));
        for (let i = 0; i < count; i++) {
          values[i] = (planes[0][i] | (planes[1][i] << 8) | (planes[2][i] << 16) | (planes[3][i] << 24)) * step;
        }
        place += 4 * count;
      } else {
        const view = new DataView(bytes.buffer, place, 8 * count);
        for (let i = 0; i < count; i++) values[i] = view.getFloat64(8 * i, true);
        place += 8 * count;
      }
      table[name] = values;
    }
    return table;
  }

  /** A number per cell of an array that is compact where nothing changes: one length per axis, 1 or the axis's own. */
  function spread(compact, shape, sizes, cell) {
    if (compact.length === 1) return compact[0];
    let index = 0, rest = cell, stride = 1;
    for (let axis = sizes.length - 1; axis >= 0; axis--) {
      const at = rest % sizes[axis];
      rest = (rest - at) / sizes[axis];
      if (shape[axis] > 1) index += at * stride;
      stride *= shape[axis];
    }
    return compact[index];
  }

  function subsets(items) {
    return items.reduce((found, item) => found.concat(found.map((s) => [...s, item])), [[]]);
  }

  function places(cell, sizes) {
    const at = new Array(sizes.length);
    for (let axis = sizes.length - 1; axis >= 0; axis--) {
      at[axis] = cell % sizes[axis];
      cell = (cell - at[axis]) / sizes[axis];
    }
    return at;
  }

  const key = (table, set) => JSON.stringify([table.source, ...set.sort(order)]);

  /** Sums of the weights of cells by where they lie along some axes; the other axes meet their t. */
  function contracted(term, axes) {
    const found = new Map(), { sizes } = term.table, rest = [];
    sizes.forEach((n, axis) => { if (!axes.includes(axis)) rest.push([axis, term.table.tilts[axis], 1 / n]); });
    term.cells.forEach((cell, i) => {
      const at = places(cell, sizes);
      let index = 0, weight = term.weights[i];
      for (const axis of axes) index = index * sizes[axis] + at[axis];
      for (const [axis, tilt, mean] of rest) weight *= tilt ? tilt.tilt[at[axis]] : mean;
      found.set(index, (found.get(index) || 0) + weight);
    });
    return found;
  }

  /** One of M's numbers: of the centring, or of an attribute whose residuals are tilted. */
  const entry = (tilt, n, a, b) => (tilt ? tilt.form[a * n + b] : (a === b ? 1 : 0) - 1 / n);

  /** f (⊗ M) g over the axes of these sizes. */
  function form(f, g, sizes, tilts) {
    const cells = sizes.reduce((a, b) => a * b, 1);
    if (f.size * g.size <= 4096 || f.size * g.size <= 4 * cells) {
      const rows = [...g].map(([i, w]) => [places(i, sizes), w]);
      let sum = 0;
      for (const [i, w] of f) {
        const at = places(i, sizes);
        for (const [to, v] of rows) {
          let product = w * v;
          for (let k = 0; k < sizes.length; k++) product *= entry(tilts[k], sizes[k], at[k], to[k]);
          sum += product;
        }
      }
      return sum;
    }
    let table = new Float64Array(cells), stride = cells;
    for (const [i, w] of g) table[i] = w;
    sizes.forEach((n, axis) => {
      stride /= n;
      const next = new Float64Array(cells);
      for (let start = 0; start < cells; start++) {
        if (Math.floor(start / stride) % n) continue; // the first cell of each line along this axis
        let mean = 0;
        for (let b = 0; b < n; b++) mean += table[start + b * stride] / n;
        for (let a = 0; a < n; a++) {
          let value = table[start + a * stride] - mean;
          if (tilts[axis]) {
            value = 0;
            for (let b = 0; b < n; b++) value += tilts[axis].form[a * n + b] * table[start + b * stride];
          }
          next[start + a * stride] = value;
        }
      }
      table = next;
    });
    let sum = 0;
    for (const [i, w] of f) sum += w * table[i];
    return sum;
  }

  /** Covariance of two terms of tables whose cells' covariances are in closed form. */
  function agreeing(one, other) {
    let sum = 0;
    for (const inner of subsets(one.table.names.filter((n) => other.table.names.includes(n)))) {
      const known = one.table.agree[key(one.table, [...inner])];
      if (known === undefined) throw new Refused("how these two err together is not told here; ask it in Python");
      const axes = [one, other].map((t) => inner.map((n) => t.table.names.indexOf(n)));
      const sizes = axes[0].map((axis) => one.table.sizes[axis]), tilts = axes[0].map((axis) => one.table.tilts[axis]);
      sum += known * form(contracted(one, axes[0]), contracted(other, axes[1]), sizes, tilts);
    }
    return sum;
  }

  /** Names in the order of Python's sort: by code points. */
  function order(a, b) {
    const [x, y] = [Array.from(a), Array.from(b)];
    for (let i = 0; i < Math.min(x.length, y.length); i++) {
      if (x[i] !== y[i]) return x[i].codePointAt(0) - y[i].codePointAt(0);
    }
    return x.length - y.length;
  }

  /** Covariance of two terms {table, cells, weights}. */
  function between(one, other) {
    const [a, b] = [one.table, other.table];
    if (a.release !== b.release) return 0;
    if (a === b && a.how === "dense") {
      const n = a.value.length, held = a.data.covariance;
      let sum = 0;
      one.cells.forEach((i, k) => other.cells.forEach((j, l) => {
        const [low, high] = i < j ? [i, j] : [j, i];
        sum += one.weights[k] * other.weights[l] * held[low * n - (low * (low - 1)) / 2 + high - low];
      }));
      return sum;
    }
    if (a.source !== "named" && b.source !== "named" && a.source !== b.source) return 0;
    if (a.how === "agree" && b.how === "agree") return agreeing(one, other);
    if (a === b && one.cells.length === 1 && other.cells.length === 1 && one.cells[0] === other.cells[0]) {
      return one.weights[0] * other.weights[0] * a.error(one.cells[0]) ** 2;
    }
    throw new Refused("how these two err together is not told here; ask it in Python");
  }

  /** A sum of terms of any tables. */
  class Linear {
    constructor(terms) { this.terms = terms; }
    static of(table, cells, weights) {
      return new Linear([{ table, cells, weights: weights || cells.map(() => 1) }]);
    }
    times(factor) {
      return new Linear(this.terms.map((t) => ({ ...t, weights: t.weights.map((w) => w * factor) })));
    }
    plus(other) { return new Linear([...this.terms, ...other.terms]); }
    minus(other) { return this.plus(other.times(-1)); }
    get projected() { return this.terms.some((t) => t.table.projected); }
    sum(which) {
      return this.terms.reduce((all, t) => all + t.cells.reduce((s, c, i) => s + t.weights[i] * t.table[which][c], 0), 0);
    }
    get value() { return this.sum("value"); }
    get raw() { return this.sum("raw"); }
    covariance(other) {
      let sum = 0;
      for (const a of this.terms) for (const b of other.terms) sum += between(a, b);
      return sum;
    }
    answer(z) {
      const error = Math.sqrt(Math.max(this.covariance(this), 0));
      return ended(this.value, error, this.raw - z * error, this.raw + z * error, this.projected);
    }
  }

  /** Of a projected value no standard error is known; its interval is the unprojected one, extended to it. */
  function ended(value, error, low, high, projected) {
    return projected
      ? { value, error: null, low: Math.min(low, value), high: Math.max(high, value) }
      : { value, error, low, high };
  }

  /** top / bottom: all p for which top - p bottom could be 0. */
  function ratio(top, bottom, z) {
    const [a, b] = [top.raw, bottom.raw];
    const [va, vb, c] = [top.covariance(top), bottom.covariance(bottom), top.covariance(bottom)];
    const size = Math.sqrt(Math.max(vb, 0));
    if (Math.abs(b) <= Math.max(Math.max(SIZE_ERRORS, z) * size, 0.5)) {
      throw new Refused("the denominator is too near 0 for a ratio: it needs 5 standard errors");
    }
    const value = a / b;
    const error = Math.sqrt(Math.max(va - 2 * value * c + value * value * vb, 0)) / Math.abs(b);
    const [q2, q1, q0] = [b * b - z * z * vb, a * b - z * z * c, a * a - z * z * va];
    const root = Math.sqrt(Math.max(q1 * q1 - q2 * q0, 0));
    return ended(top.value / bottom.value, error, (q1 - root) / q2, (q1 + root) / q2, top.projected || bottom.projected);
  }

  /** a/b - c/d: the squares of the two intervals' arms, with what the two ratios err together (MOVER). */
  function differenceOfRatios(a, b, c, d, z) {
    const [one, other] = [ratio(a, b, z), ratio(c, d, z)];
    const [p, q] = [a.raw / b.raw, c.raw / d.raw];
    // linearised ratios: (a - p b) / b and (c - q d) / d
    const [u, v] = [a.minus(b.times(p)).times(1 / b.raw), c.minus(d.times(q)).times(1 / d.raw)];
    const [su, sv, cov] = [u.covariance(u), v.covariance(v), u.covariance(v)];
    const rho = su > 0 && sv > 0 ? Math.max(-1, Math.min(1, cov / Math.sqrt(su * sv))) : 0;
    const arm = (x, y) => Math.sqrt(Math.max(x * x + y * y - 2 * rho * x * y, 0));
    const error = Math.sqrt(Math.max(su + sv - 2 * cov, 0));
    const low = p - q - arm(p - one.low, other.high - q), high = p - q + arm(one.high - p, q - other.low);
    return ended(one.value - other.value, error, low, high, one.error === null || other.error === null);
  }

  /** Ranks of linear answers, the largest first, each interval from its differences with all others. */
  function ranks(all, z) {
    const held = all.map((mine, i) => all.slice(0, i + 1).map((other) => mine.covariance(other)));
    const between = (i, j) => (i < j ? held[j][i] : held[i][j]);
    return all.map((mine, i) => {
      let above = 0, below = 0;
      all.forEach((other, j) => {
        if (i === j) return;
        const change = other.raw - mine.raw;
        const error = Math.sqrt(Math.max(held[i][i] + held[j][j] - 2 * between(i, j), 0));
        if (change > z * error) above++;
        if (change < -z * error) below++;
      });
      const rank = 1 + all.filter((other) => other.value > mine.value).length;
      return { value: mine.value, rank, low: Math.min(rank, 1 + above), high: Math.max(rank, all.length - below) };
    });
  }

  /** The files of the tilted attributes of a table: [axis, file]. */
  function tilted(entry, release) {
    const named = entry.names.map((n, axis) => [axis, release.tilts[key(entry, [n])]]);
    return entry.how === "agree" ? named.filter(([, file]) => file) : [];
  }

  /** A table of a site: what the list says of it, joined with its file and those of its tilted attributes by axis. */
  function table(entry, data, attributes, release, tilts) {
    const sizes = entry.queries ? [entry.queries.length] : entry.names.map((n) => attributes[n].labels.length);
    const projected = data.raw !== undefined, raw = projected ? data.raw : data.value;
    const error = (cell) => spread(data.error, data.shape, sizes, cell);
    const margin = (cell) => spread(data.margin, data.shape, sizes, cell);
    const clip = (x) => Math.min(Math.max(x, data.range[0] ?? -Infinity), data.range[1] ?? Infinity);
    const interval = (cell) => {
      if (data.low) return [data.low[cell], data.high[cell]];
      const [value, from, to] = [data.value[cell], raw[cell] - margin(cell), raw[cell] + margin(cell)];
      return projected ? [Math.min(clip(from), value), Math.max(clip(to), value)] : [from, to];
    };
    return { ...entry, sizes, data, value: data.value, raw, projected, error, interval, release: release.name,
      agree: release.agree, tilts: tilts || {} };
  }

  return { Linear, Refused, differenceOfRatios, ranks, ratio, table, tilted, unpack };
})();
if (typeof module !== "undefined") module.exports = Calc;
