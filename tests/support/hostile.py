"""Values that engines read in their own ways, as texts; what they mean is what they mean in a file."""

from __future__ import annotations

LONG = "n" * 60
ODD_NAMES = ['we"ird', "quo'te", "back\\slash", "é🙂", "N" * 60, "select", "%s $1", "a.b", "c0", "{}"]
TEXTS = [
    *(None, "", " ", "a", "A", "a ", " a", "á", "a\u0301", "ß", "SS", "İ", "1", "1.0", "01", "+1", "1e0", "NaN", "nan"),
    *(
        "inf",
        "-Infinity",
        "1e400",
        "1_000",
        "１２",
        "0x10",
        "true",
        "T",
        "\\",
        '"',
        "'",
        "\\N",
        "🙂",
        LONG,
        "NULL",
        "null",
    ),
    *(
        "\x1b[31m",
        "a\nb",
        "a\tb",
        "\r",
        "=cmd()",
        "\uffff",
        "\ufeffa",
        "2001-02-03",
        "-0",
        "-0.0",
        "9" * 40,
        "x" * 3000,
    ),
]
FLOATS = [None, "0", "-0.0", "1", "3.5", "0.1", "1e10", "1e16", "1e-300", "5e-324", "1.7e308", "NaN", "inf", "-inf"]
SINGLES = [None, "0", "-0.0", "1", "3.5", "0.1", "1e10", "1e-30", "NaN", "inf", "-inf", "16777216"]
DECIMALS = [None, "0", "0.00", "1.0", "1.50", "-3", "0.1", "1e-9", "99999999999999999999999999", "100", "12.345", "7"]
DAYS = [None, "0001-01-01", "2001-02-03", "9999-12-31", "10000-01-01", "infinity", "-infinity", "0044-03-15 (BC)"]
MOMENTS = [f"2001-02-03 04:05:06{f}" for f in ("", ".1", ".123456", ".000007")]
UUIDS = [None, "00000000-0000-0000-0000-000000000001", "FFFFFFFF-ffff-FFFF-ffff-ffffffffffff"]
WHOLES = [None, "0", "1", "-3", "7", "32767", "-32768"]
CODES = [
    "a",
    "A",
    "á",
    "ß",
    "1",
    "0",
    "7",
    "0.1",
    "1.5",
    "3.5",
    "100",
    "true",
    "nan",
    "inf",
    "\\",
    '"',
    "'",
    "🙂",
    LONG,
]
CODES += [
    "2001-02-03",
    "10000-01-01",
    "infinity",
    "2001-02-03 04:05:06.1",
    "2001-02-03 04:05:06",
    "it's",
    "\\N",
    "x" * 99,
]
CODES += ["00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff", "16777216", "NULL", "1e16"]
