"""The image: what the Dockerfile says, and, in the long form, that it builds and its programs run as user 7070."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from install_tree import SOURCE
import required

FOLDER = SOURCE / "deploy/docker"


def run(*command, limit=60, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=SOURCE, check=False,
                          env=dict(os.environ, **environment))


class DockerTest(unittest.TestCase):
    def test_two_stages_and_no_root(self):
        text = (FOLDER / "Dockerfile").read_text()
        self.assertLess(text.index("ARG BASE="), text.index("FROM"), "the base is an argument")
        self.assertEqual(re.findall(r"(?m)^FROM (\S+)", text), ["${BASE}", "${BASE}"])
        self.assertLess(text.index("ARG PRESET=cpu-release"), text.index("FROM"), "and so is what is built")
        last = text[text.rindex("FROM"):]
        self.assertRegex(last, r"(?m)^USER 7070:7070$")
        self.assertNotRegex(last, r"g\+\+|cmake|COPY \. ")

    def test_the_build_stage_installs_what_the_programs_need(self):
        """The Dockerfile picks sections of packages.txt by their headings."""
        script = re.search(r"(sed -n '[^']*' scripts/packages.txt \| grep -v '\^#')", (FOLDER / "Dockerfile").read_text())
        listed = run("sh", "-c", script.group(1)).stdout.split()
        self.assertLessEqual({"g++", "cmake", "ninja-build", "libgrpc++-dev", "libboost-dev", "prometheus-cpp-dev",
                              "libopenblas-dev", "libgloo-dev", "libsqlite3-dev"}, set(listed))
        self.assertEqual([p for p in listed if re.search(r"torch|gtest|clang|fortunes|prometheus$|\|", p)], [])

    def test_builds_where_the_host_can(self):
        if not os.environ.get("MT_LONG_TESTS"):
            self.skipTest("compiles everything once more: only with MT_LONG_TESTS=1 (scripts/test.sh --full)")
        can = run("bash", str(FOLDER / "build.sh"), "--check", limit=300)
        if can.returncode == 77:
            required.missing(can.stderr.strip())
        self.assertEqual(can.returncode, 0, can.stderr)
        tag = "localhost/megatrain-test:1"
        done = run("bash", str(FOLDER / "build.sh"), tag, limit=3000)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-4000:])
        self.addCleanup(run, "buildah", "rmi", tag)
        container = run("buildah", "from", tag).stdout.strip()
        self.addCleanup(run, "buildah", "rm", container)
        for program in ("mtctl", "mt-coordinator", "mt-worker"):
            said = run("buildah", "run", "--isolation", "chroot", container, "--", f"/usr/bin/{program}", "--version")
            self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(run("buildah", "run", "--isolation", "chroot", container, "--", "id", "-u").stdout.strip(), "7070")
        self.assertEqual(run("buildah", "run", "--isolation", "chroot", container, "--", "sh", "-c",
                             "command -v g++ cmake").stdout, "", "a compiler in the image")

    def test_the_script_says_why_it_cannot(self):
        """A path without buildah."""
        with tempfile.TemporaryDirectory(prefix="mtpath-") as folder:
            for program in ("dirname", "id"):
                os.symlink(shutil.which(program), f"{folder}/{program}")
            done = run(shutil.which("bash"), str(FOLDER / "build.sh"), "--check", PATH=folder)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("cannot build an image here: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
