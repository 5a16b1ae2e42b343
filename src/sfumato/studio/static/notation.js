// Numbers and days as the table writes them, read and written out: what is typed means what it would mean in the table.

const BLANKS = /[\s\u00a0\u202f\u2009]/g;
const PLAIN = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** The marks that [data] of a spec declares. */
export const marksOf = (about) => ({ decimal: about?.decimal || ".", thousands: about?.thousands || "" });

/**
 * A number that was typed, as the spec writes it, or null. What the declared marks allow has their meaning: 250.000 is
 * 250000 where points stand between thousands. Only what they do not allow is read as English, if that can be.
 */
export function readNumber(text, { decimal, thousands }) {
  const typed = text.trim().replace(/^[\u2212\u2013]/, "-").replace(/^\+/, "").replace(/\u2019/g, "'");
  const mark = thousands === " " ? "[\\s\\u00a0\\u202f\\u2009]" : thousands && `[${thousands}]`;
  const whole = mark ? `(?:[1-9]\\d{0,2}(?:${mark}\\d{3})+|\\d+)` : "\\d+";
  const found = typed.match(new RegExp(`^(-?)(${whole})(?:[${decimal}](\\d+))?$`));
  if (found) {
    const digits = found[2].replace(/\D/g, "").replace(/^0+(?=\d)/, "");
    const rest = decimal === "." ? found[3] : found[3]?.replace(/0+$/, "");
    return `${found[1]}${digits}${rest ? `.${rest}` : ""}`;
  }
  if (PLAIN.test(typed)) return typed;
  // 1,234.50: a comma between thousands and a point before decimals can only be English
  return /^-?[1-9]\d{0,2}(,\d{3})+\.\d+$/.test(typed) ? typed.replaceAll(",", "") : null;
}

/** Several numbers: semicolons between them, or commas; where commas stand in numbers, commas with a blank behind. */
export function splitNumbers(text, { decimal, thousands }) {
  const apart = text.includes(";") ? ";" : decimal === "," || thousands === "," ? /,\s+/ : ",";
  return text.split(apart).map((t) => t.trim().replace(/,$/, "")).filter(Boolean);
}

/** What is wrong with several numbers, or "": one comma alone may stand in a number or between two. */
export function doubtOfNumbers(text, marks) {
  const odd = splitNumbers(text, marks).find((t) => readNumber(t, marks) === null);
  if (odd !== undefined) return `${odd} is no number as the table writes them. Put a semicolon between two numbers`;
  const commas = marks.decimal === "," || marks.thousands === ",";
  return commas && !/;|,\s/.test(text.trim()) && text.includes(",") ? "this may be one number or two: put a semicolon between two, or behind one" : "";
}

/** The marks of a number that was typed as an example: the last one that stands once is before decimals. */
export function numberMarks(text) {
  const found = text.trim().match(/^[-+]?\d{1,3}(?:([., '])\d{3}(?:\1\d{3})*)?(?:([.,])\d+)?$/) || text.trim().match(/^[-+]?\d+()(?:([.,])\d+)?$/);
  if (!found || (found[1] && found[1] === found[2])) return null;
  const [, thousands, decimal] = found;
  if (thousands && !decimal && thousands !== " " && thousands !== "'") return null; // 1.234 may be either
  return { thousands: thousands || null, decimal: decimal === "," ? "," : null };
}

const grouped = (digits, mark) => digits.replace(/\B(?=(\d{3})+$)/g, mark);
/** A number of the spec with the declared decimal mark and others' marks of thousands: no mark, a narrow blank, or its own. */
export function writtenNumber(value, { decimal }, between = "") {
  const [, sign, whole, rest] = String(value).match(/^([-+]?)(\d+)(?:\.(\d+))?$/) ?? [];
  if (whole === undefined) return String(value);
  return `${between && sign === "-" ? "\u2212" : sign}${between ? grouped(whole, between) : whole}${rest ? decimal + rest : ""}`;
}
/** The same for eyes: thousands apart, in a way that no notation takes for decimals. */
export const shownNumber = (value, marks) => writtenNumber(value, marks, "\u202f");

const PARTS = { "%Y": "(?<Y>\\d{4})", "%m": "(?<m>\\d{1,2})", "%d": "(?<d>\\d{1,2})" };
/** A day that was typed, in the column's format or as year-month-day, as the spec writes it; or null. */
export function readDay(text, format) {
  for (const form of [format, "%Y-%m-%d"].filter(Boolean)) {
    const pattern = form.replace(/%[Ymd]|[^%]/g, (part) => PARTS[part] ?? part.replace(/[.*+?^${}()|[\]\\/]/, "\\$&"));
    const found = text.trim().match(new RegExp(`^${pattern}$`))?.groups;
    if (!found) continue;
    const iso = `${found.Y}-${found.m.padStart(2, "0")}-${found.d.padStart(2, "0")}`;
    const day = new Date(`${iso}T00:00:00Z`);
    if (!Number.isNaN(day.getTime()) && day.toISOString().startsWith(iso)) return iso;
  }
  return null;
}

/** How a day is written, of an example in which the parts can be told apart; null where they cannot. */
export function dateFormat(text) {
  const found = text.trim().match(/^(\d{1,4})([-./ ]?)(\d{1,2})\2(\d{1,4})$/);
  if (!found) return null;
  const [, first, mark, second, third] = found;
  if (first.length === 4) return Number(second) <= 12 && third.length <= 2 ? `%Y${mark}%m${mark}%d` : null;
  if (third.length !== 4 || !mark) return null;
  const [one, two] = [Number(first), Number(second)];
  if (one > 12 && one <= 31 && two <= 12) return `%d${mark}%m${mark}%Y`;
  if (two > 12 && two <= 31 && one <= 12) return `%m${mark}%d${mark}%Y`;
  return null;
}

/**
 * A day that was typed where a format is declared or not: as the spec writes it, and the format that it has where none was
 * declared and this one can be read in one way alone. Null where it is no day, or two.
 */
export function typedDay(text, format) {
  const day = readDay(text, format);
  if (day) return { day };
  const own = format ? null : dateFormat(text);
  const found = own && readDay(text, own);
  return found ? { day: found, format: own } : null;
}

/** What is wrong with a day that was typed, and what to write instead; or "". */
export function doubtOfDay(text, format) {
  if (typedDay(text, format)) return "";
  const typed = text.trim();
  if (format) return `${typed || "this"} is no day as this column writes them: write ${writtenDay("2025-12-31", format)}, or 2025-12-31`;
  const parts = typed.match(/^(\d{1,2})([-./])(\d{1,2})\2\d{4}$/);
  if (parts && Number(parts[1]) <= 12 && Number(parts[3]) <= 12) return `the day and the month of ${typed} cannot be told apart: write the year first, as in 2025-12-31, or type below how the table writes a day after the 12th`;
  return `${typed || "this"} is no day that can be read: write 2025-12-31 or 31.12.2025`;
}

/** A day of the spec in the column's format. */
export function writtenDay(iso, format) {
  const found = String(iso).match(/^(\d{4})-(\d\d)-(\d\d)$/);
  return found && format ? format.replace("%Y", found[1]).replace("%m", found[2]).replace("%d", found[3]) : String(iso);
}

/** A day of the spec in words, in the language of the page. */
export function dayInWords(iso) {
  const spoken = globalThis.document?.documentElement.lang ?? "en";
  return new Intl.DateTimeFormat(spoken === "en" ? "en-GB" : spoken, { dateStyle: "long", timeZone: "UTC" }).format(new Date(`${iso}T00:00:00Z`));
}

/** The number in a condition that a reader of this notation takes for another: conditions are in English; or null. */
export function doubtOfCondition(text, marks) {
  if (marks.decimal === "." && marks.thousands !== ",") return "";
  const bare = text.replace(/'(?:[^']|'')*'|`[^`]*`/g, "");
  const found = bare.match(marks.decimal === "," ? /\d+[.,][\d.,]*\d/ : /\d+,[\d.,]*\d/)?.[0];
  const meant = found && readNumber(found, marks);
  if (!meant || meant === found) return "";
  return `numbers in conditions have a point before decimals and nothing between thousands, here unlike the table: write ${meant} for ${found}`;
}

const dayNumber = (iso) => Date.parse(`${iso}T00:00:00Z`) / 86_400_000;
const isoOf = (number) => new Date(number * 86_400_000).toISOString().slice(0, 10);
/** The last day of birth of those who are so many years old on a day; of 29 February the 28th, where the year has none. */
function bornBy(day, years) {
  const [y, m, d] = day.split("-").map(Number);
  const last = Math.min(d, new Date(Date.UTC(y - years, m, 0)).getUTCDate());
  return `${String(y - years).padStart(4, "0")}-${String(m).padStart(2, "0")}-${String(last).padStart(2, "0")}`;
}

const AGES = {
  en: { under: (a) => `under ${a}`, span: (a, b) => `${a} to under ${b}`, over: (a) => `${a} and over` },
  de: { under: (a) => `unter ${a}`, span: (a, b) => `${a} bis unter ${b}`, over: (a) => `${a} und älter` },
  fr: { under: (a) => `moins de ${a} ans`, span: (a, b) => `${a} à moins de ${b} ans`, over: (a) => `${a} ans et plus` },
};
/** Groups by age on a day as cells of days of birth: the range, first days of cells, and what each is called. */
export function ageGroups(day, ages, low) {
  const down = [...ages].sort((a, b) => b - a);
  const starts = down.map((age) => isoOf(dayNumber(bornBy(day, age)) + 1));
  const found = { min: low ?? bornBy(day, 120), max: day, starts };
  const called = (words) => [words.over(down[0]), ...down.slice(1).map((age, i) => words.span(age, down[i])), words.under(down.at(-1))];
  const names = Object.fromEntries(Object.entries(AGES).map(([language, words]) => [language, called(words)]));
  return { ...found, texts: starts.concat("").map((_, i) => Object.fromEntries(Object.keys(names).map((l) => [l, names[l][i]]))) };
}

/** The labels of cells that begin on given days, as the domain has them. */
export function cellsOfDays({ min, max, starts }) {
  const ends = [...starts.map((day) => isoOf(dayNumber(day) - 1)), max];
  return [min, ...starts].map((first, i) => (first === ends[i] ? first : `${first}..${ends[i]}`));
}
