"""Citations of documents, the table of numbers, and the width of Markdown: what ties comments to docs/design."""
import pathlib
import re
import unittest

from install_tree import SOURCE

DESIGN = SOURCE / "docs/design"
CODE = {".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".yaml", ".yml", ".txt"}
FOLDERS = ("client", "common", "daemon", "dashboards", "deploy", "docs", "kernels", "proto", "scripts", "tests", "worker")
WIDEST = 140
GENERATED = {"docs/job-reference.md"}  # mtctl explain --markdown
NUMBERS = SOURCE / "common/control/numbers.h"


def files(suffixes):
    tops = [path for path in SOURCE.iterdir() if path.is_file()]
    below = [path for folder in FOLDERS for path in (SOURCE / folder).rglob("*")]
    return sorted(path for path in tops + below
                  if path.suffix in suffixes and path.is_file() and "node_modules" not in path.parts and path != pathlib.Path(__file__))


# "FORMAT.md" alone may mean that of any folder; what lies below share/ is installed.
NAMES = {path.name for path in files({".md"})}


def name_of(path):
    return str(path.relative_to(SOURCE))


def slug(heading):
    """As GitHub makes anchors of headings."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sections_of(markdown):
    """Headings, and what opens a paragraph or list item in bold."""
    text = re.sub(r"(?s)```.*?```", "", markdown)
    return re.findall(r"(?m)^#+ +(.+?)\s*$", text) + re.findall(r"(?m)^(?:[*-] |\d+\. )?\*\*(.+?)\.?\*\*", text)


def resolve(mentioned, citing):
    """The document that a mention means: a path from the root, or a file beside the one that cites."""
    for path in (SOURCE / mentioned, citing.parent / mentioned):
        if path.is_file():
            return path
    return None


def joined(text):
    """Comment lines as one line, so that a quoted heading may go over a line's end."""
    return re.sub(r"\n[ \t]*(?://+|#)?[ \t]*", " ", text)


def missing_citations(text, citing):
    """Of `PATH.md`, `PATH.md#section` and `PATH.md, "Section"` in this file: what leads nowhere."""
    missing = []
    for path, anchor, quoted in re.findall(r'(?<![\w./*<{}$-])((?:[\w.-]+/)*[\w-]+\.md)\b(?:#([\w-]+)|, "([^"]+)")?', joined(text)):
        found = resolve(path, citing)
        if found is None and (path.startswith("share/") or path in NAMES and not anchor and not quoted):
            continue
        if found is None:
            missing.append(path)
        elif anchor and anchor not in map(slug, sections_of(found.read_text())):
            missing.append(f"{path}#{anchor}")
        elif quoted and not any(section.lower().split(":")[0] == quoted.lower() for section in sections_of(found.read_text())):
            missing.append(f'{path}, "{quoted}"')
    return missing


def bare_names(text, pages):
    """Names of design pages without their path, which no reader could follow."""
    names = "|".join(re.escape(page) for page in sorted(pages))
    return re.findall(rf"(?<![\w/-])(?:{names})(?:\.md)?(?:'s\b|,? \"|\.md\b)", text)


def wide_lines(markdown):
    """Numbers of lines beyond the limit, but for tables and code."""
    wide, fenced = [], False
    for number, line in enumerate(markdown.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif len(line) > WIDEST and not fenced and not line.lstrip().startswith("|") and not line.startswith("    "):
            wide.append(number)
    return wide


def constants_of(header):
    """{name: value}: seconds of durations, bytes of sizes, plain numbers of the rest."""
    unit = {"milliseconds": 1e-3, "seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
    values = {}
    for kind, name, braces, equals in re.findall(r"inline constexpr (\w+) (k\w+)(?:\{(.+?)\}| = (.+?));", header):
        text = (braces or equals).replace("'", "")
        number = re.sub(r"(?:int64_t|days|hours)\{(\d+)\}", r"\1", text)
        shifted = re.fullmatch(r"(\d+) << (\d+)", number)
        value = int(shifted[1]) << int(shifted[2]) if shifted else float(number)
        kind = re.match(r"(?:days|hours)(?=\{)", text)[0] if re.match(r"(?:days|hours)\{", text) else kind
        values[name] = value * unit.get(kind, 1)
    return values


def rows_of(page):
    """{name: (id, value)} of the rows that name a constant; values as constants_of has them."""
    unit = {"ms": 1e-3, "s": 1, "h": 3600, "d": 86400, "KiB": 1 << 10, "MiB": 1 << 20, "": 1}
    rows = {}
    for key, name, value, suffix in re.findall(r"(?m)^\| ([A-Z]\d+)(?:, [A-Z]\d+)* \|[^|]*\| `(k\w+)` \| ([\d.]+) ?(\w*) \|$", page):
        rows[name] = (key, float(value) * unit[suffix])
    return rows


def exit_codes_of(header):
    """{code: (cause, what another epoch is counted against)} of the table of a rank's exit codes, as the page writes them."""
    codes = dict(re.findall(r"(?m)^  (kExit\w+) = (\d+),", header))
    words = {"kNever": "never", "kStorage": "storage", "kUser": "user", "kHang": "hang", "kInfrastructure": "infrastructure"}
    out = {}
    for name, cause, budget, elsewhere, done in re.findall(
            r"\{(kExit\w+), ExitCause::(k\w+), RestartBudget::(k\w+), (true|false), (true|false),", header):
        more = ", on other nodes" * (elsewhere == "true") + ", and the agent puts the slot out of order" * (done == "true")
        cause = {"kPreflight": "PREFLIGHT_FAILED", "kUserError": "USER_ERROR"}.get(cause, cause[1:].upper())
        out[codes[name]] = (cause, words[budget] + more)
    return out


def exit_rows_of(page):
    section = page[page.index("\n## Exit codes"):page.index("\n## Operations and commands")]
    rows = re.findall(r"(?m)^\| (\d+) \|[^|]*\| ([A-Z_]*) ?\| ?([^|]*?) ?\|$", section)
    return {code: (cause, what) for code, cause, what in rows if code != "0"}


def ids_of(text):
    return set(re.findall(r"\b[LPRATG]\d{1,2}\b", text))


class DesignTest(unittest.TestCase):
    def test_citations_lead_somewhere(self):
        cited, missing = 0, {}
        for path in files(CODE | {".md"}):
            text = path.read_text(errors="replace")
            cited += len(re.findall(r"docs/design/[\w-]+\.md", text))
            if nowhere := missing_citations(text, path):
                missing[name_of(path)] = nowhere
        self.assertEqual(missing, {})
        self.assertGreater(cited, 25)

    def test_pages_are_cited_by_their_path(self):
        pages = {page.stem for page in DESIGN.glob("*-*.md")} | {"job-spec", "cudnn-attention"}
        for path in files(CODE):
            self.assertEqual(bare_names(path.read_text(errors="replace"), pages), [], name_of(path))

    def test_the_index_names_every_page(self):
        index = (DESIGN / "README.md").read_text()
        for page in DESIGN.glob("*.md"):
            if page.name != "README.md":
                self.assertIn(f"[{page.name}]({page.name})", index)

    def test_the_table_of_numbers_is_the_header(self):
        constants, rows = constants_of(NUMBERS.read_text()), rows_of((DESIGN / "control-plane.md").read_text())
        self.assertGreater(len(constants), 35)
        self.assertEqual(set(rows), set(constants))
        for name, (key, value) in rows.items():
            self.assertAlmostEqual(value, constants[name], msg=f"{key} {name}")
            comment = NUMBERS.read_text().split(f" {name}")[0].rsplit("\n\n", 1)[1]
            self.assertIn(key, ids_of(comment), f"{name} stands below another id")

    def test_the_table_of_exit_codes_is_the_header(self):
        codes = exit_codes_of((SOURCE / "common/control/rank_exit_codes.h").read_text())
        self.assertGreaterEqual(len(codes), 11)
        self.assertEqual(exit_rows_of((DESIGN / "control-plane.md").read_text()), codes)

    def test_ids_in_comments_are_in_the_table(self):
        known = ids_of((DESIGN / "control-plane.md").read_text())
        found = set()
        for path in files(CODE):
            if not name_of(path).startswith(("common/rpc/", "daemon/", "worker/agent/", "worker/node/", "worker/rank/", "worker/shim/")):
                continue
            said = ids_of(" ".join(re.findall(r"//.*", path.read_text())))
            self.assertEqual(said - known, set(), name_of(path))
            found |= said
        self.assertGreater(len(found), 10)

    def test_states_and_members_are_all_named(self):
        """A state, cause or scalar that is added to the code is added to its page."""
        control, ops = (DESIGN / "control-plane.md").read_text(), (DESIGN / "op-contracts.md").read_text()
        types = (SOURCE / "proto/megatrain/v1/types.proto").read_text() + (SOURCE / "proto/megatrain/v1/store.proto").read_text()
        for enum, least in (("JobState", 14), ("RankState", 12), ("Cause", 11), ("AllocationState", 7)):
            body = re.search(rf"(?s)enum {enum} {{(.*?)\n}}", types)[1]
            names = [name for name in re.findall(r"(?m)^  ([A-Z_]+) = \d+;", body) if not name.endswith("_UNSPECIFIED")]
            self.assertGreaterEqual(len(names), least)
            for name in names:
                self.assertRegex(control, rf"\b{name}\b", enum)
        scalars = "".join((SOURCE / path).read_text() for path in ("kernels/ops/step_scalars.h", "worker/engine/step_vector.h"))
        for struct, least in (("StepScalars", 14), ("EndOfStep", 4), ("StepVector", 3)):
            body = re.sub(r"//.*", "", re.search(rf"(?s)struct {struct} {{(.*?)\n}};", scalars)[1])
            names = [name for name in re.findall(r"(?:int64_t|double) (\w+)", body) if name != "reserved"]
            self.assertGreaterEqual(len(names), least)
            for name in names:
                self.assertIn(f"`{name}`", ops, struct)

    def test_markdown_is_not_wide(self):
        pages = files({".md"})
        self.assertGreater(len(pages), 50)
        wide = {name_of(path): wide_lines(path.read_text()) for path in pages if name_of(path) not in GENERATED}
        self.assertEqual({name: lines for name, lines in wide.items() if lines}, {}, f"lines above {WIDEST} columns")


class DesignSelfTest(unittest.TestCase):
    """Each check sees an offence of its kind."""

    def test_citations(self):
        here = SOURCE / "common/control/numbers.h"
        self.assertEqual(missing_citations("// docs/design/gpu-engine.md#marks, README.md", here), [])
        self.assertEqual(missing_citations('// docs/design/numerics.md, "What is\n// promised"', here), [])
        self.assertEqual(missing_citations("// docs/design/nothing.md", here), ["docs/design/nothing.md"])
        self.assertEqual(missing_citations("// docs/design/gpu-engine.md#mark", here), ["docs/design/gpu-engine.md#mark"])
        self.assertEqual(missing_citations('// README.md, "Nothing"', here), ['README.md, "Nothing"'])

    def test_bare_names(self):
        pages = {"gpu-engine"}
        self.assertEqual(bare_names("// docs/design/gpu-engine.md#marks", pages), [])
        for text in ("gpu-engine's \"One rank\"", "(gpu-engine, \"One rank\")", "gpu-engine.md, 3"):
            self.assertEqual(len(bare_names(text, pages)), 1, text)

    def test_widths(self):
        wide = "x" * (WIDEST + 1)
        self.assertEqual(wide_lines(f"{wide[1:]}\n{wide}\n| {wide} |\n```\n{wide}\n```\n- {wide}"), [2, 7])

    def test_exit_codes(self):
        header = ("  kExitA = 65,\n  kExitB = 73,\n    {kExitA, ExitCause::kPreflight, RestartBudget::kInfrastructure, true, false,\n"
                  "    {kExitB, ExitCause::kStorage, RestartBudget::kStorage, false, true, \"x\"},")
        self.assertEqual(exit_codes_of(header), {
            "65": ("PREFLIGHT_FAILED", "infrastructure, on other nodes"),
            "73": ("STORAGE", "storage, and the agent puts the slot out of order")})
        page = "\n## Exit codes\n| 0 | done | | |\n| 64 | a; b | USER_ERROR | never |\n\n## Operations and commands"
        self.assertEqual(exit_rows_of(page), {"64": ("USER_ERROR", "never")})

    def test_numbers(self):
        header = ("\n\n// L1\ninline constexpr milliseconds kA{2'000};\ninline constexpr hours kB = days{7};\n"
                  "inline constexpr int kC = 4 << 20;")
        self.assertEqual(constants_of(header), {"kA": 2, "kB": 7 * 86400, "kC": 4 << 20})
        self.assertEqual(rows_of("| L1 | a beat | `kA` | 2 s |\n| A2 | size | `kC` | 4 MiB |"), {"kA": ("L1", 2), "kC": ("A2", 4 << 20)})


if __name__ == "__main__":
    unittest.main()
