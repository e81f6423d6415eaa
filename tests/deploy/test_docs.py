"""The documentation against the programs and the tree: paths, links, verbs, flags, the client, the generated reference."""
import os
import re
import subprocess
import unittest

from install_tree import BIN, SOURCE

DOCS = sorted((SOURCE / "docs").glob("*.md")) + sorted((SOURCE / "docs/design").glob("*.md")) + [SOURCE / "deploy/README.md", SOURCE / "dashboards/README.md"]
READMES = [SOURCE / "README.md"] + sorted(
    path for folder in ("client", "common", "daemon", "kernels", "worker")
    for pattern in ("README.md", "*/README.md") for path in (SOURCE / folder).glob(pattern))
FOLDERS = ("client", "common", "daemon", "dashboards", "deploy", "docs", "kernels", "proto", "scripts", "tests", "worker")


def mtctl(*args):
    done = subprocess.run([str(BIN / "mtctl"), *args], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout


def code_of(text):
    """Fenced blocks and code spans; a span may go over a line's end."""
    spans = re.findall(r"`([^`]+)`", re.sub(r"\n\s*", " ", re.sub(r"(?s)```.*?```", "", text)))
    return re.findall(r"(?s)```\w*\n(.*?)```", text) + spans


def mentioned(text):
    """[words] after `mtctl` in code, up to the first argument in capitals, flag or option value."""
    return [line.split() for code in code_of(text) for line in re.findall(r"\bmtctl ((?:[a-z][a-z-]*(?: |$))+)", code)]


class DocsTest(unittest.TestCase):
    def test_paths_exist(self):
        pattern = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
        self.assertGreater(len(READMES), 20)
        for path in DOCS + READMES:
            missing = [p for p in pattern.findall(path.read_text()) if not (SOURCE / p).exists()]
            self.assertEqual(missing, [], path.relative_to(SOURCE))

    def test_links_lead_somewhere(self):
        for path in DOCS + READMES:
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
                if "://" not in target:
                    self.assertTrue((path.parent / target).exists(), f"{path.relative_to(SOURCE)}: {target}")

    def test_verbs_exist(self):
        code, text = mtctl("--help")
        self.assertEqual(code, 0)
        verbs = set(re.findall(r"(?m)^  ([a-z]+)[ ,]", text))
        self.assertIn("submit", verbs)
        self.assertGreater(sum(len(mentioned(path.read_text())) for path in DOCS), 20)
        for path in DOCS:
            for words in mentioned(path.read_text()):
                self.assertIn(words[0], verbs, f"{path.name}: mtctl {' '.join(words)}")

    def test_flags_of_commands_exist(self):
        """Every `mtctl verb ... --flag` in code uses a flag that the verb, or mtctl itself, has."""
        _, everywhere = mtctl("--help")
        for path in DOCS:
            for code in [line for code in code_of(path.read_text()) for line in code.splitlines()]:
                if not re.match(r"mtctl [a-z]", code):
                    continue
                words = code.split()[1:]
                verb = words[:2] if words[0] in ("admin", "get", "node", "context", "data", "dev", "tokenizer") else words[:1]
                if words[0] == "checkpoint" and words[1:] and re.fullmatch(r"[a-z]+", words[1]):
                    verb = words[:2]  # else it is `mtctl checkpoint JOB`
                _, text = mtctl(*verb, "--help")
                for flag in re.findall(r"(?<!\S)(--[a-z-]+)", code):
                    self.assertRegex(text + everywhere, rf"{flag}\b", f"{path.name}: {code}")

    def test_the_client_in_the_guide_is_the_one_that_runs(self):
        block, = re.findall(r"(?s)```python\n(.*?)```", (SOURCE / "docs/api.md").read_text())
        self.assertEqual(block, (SOURCE / "docs/examples/client.py").read_text())
        body = block.split("\n\n", 2)[2]
        statements = [line for line in body.splitlines() if line and not line.startswith("  " * 3)]
        self.assertLessEqual(len(statements), 10)

    def test_the_job_reference_is_what_explain_prints(self):
        code, text = mtctl("explain", "--markdown")
        self.assertEqual(code, 0)
        self.assertGreater(len(text.splitlines()), 100)
        path = SOURCE / "docs/job-reference.md"
        self.assertEqual(path.read_text(), text, "write it again: mtctl explain --markdown > docs/job-reference.md")

    def test_messages_of_the_troubleshooting_page_are_those_of_the_programs(self):
        """What it quotes stands in the sources; C++ may break a literal anywhere."""
        text = (SOURCE / "docs/troubleshooting.md").read_text()
        quoted = re.findall(r'(?m)^\| "([^"]+)"', text)
        self.assertGreater(len(quoted), 12)
        sources = [path.read_text() for folder in ("client", "common", "daemon", "worker")
                   for path in (SOURCE / folder).rglob("*.cc")]
        said = "\n".join(re.sub(r'"\s*\n\s*"', "", source) for source in sources)
        self.assertEqual([message for message in quoted if message not in said], [])

    def test_reasons_are_those_of_the_program(self):
        known = set(re.findall(r'= "([A-Z_]+)";', (SOURCE / "common/rpc/reason.h").read_text()))
        said = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", (SOURCE / "docs/api.md").read_text().split("## Errors")[1]))
        codes = {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"}
        self.assertEqual(said - known - codes, set())

    def test_guides_mention_every_unit_and_manifest(self):
        text = (SOURCE / "docs/operations.md").read_text()
        for word in ("mt-coordinator.service", "mt-worker.service", "kubectl apply", "stop-ranks", "sysusers"):
            self.assertIn(word, text)
        self.assertTrue(os.access(SOURCE / "docs/examples/client.py", os.R_OK))


if __name__ == "__main__":
    unittest.main()
