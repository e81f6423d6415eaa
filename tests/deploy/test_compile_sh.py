"""scripts/cmake/compile.sh as CMake calls it, with ccache and both compilers: what one folder compiled is found in another, and what has
changed is compiled anew."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(os.environ["MT_SOURCE_DIR"]) / "scripts" / "cmake"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(two LANGUAGES CXX)
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(scripts/cmake/MtToolchain.cmake)
include_directories(${CMAKE_SOURCE_DIR})
add_library(headers STATIC own/empty.cc)
target_precompile_headers(headers PRIVATE <string> <own/common.h>)
add_executable(two own/first.cc own/second.cc)
target_precompile_headers(two REUSE_FROM headers)
"""
FILES = {
    "CMakeLists.txt": PROJECT,
    "own/common.h": "inline std::string Common() { return \"common\"; }\n",
    "own/single.h": "inline const char* Single() { return \"single\"; }\n",
    "own/empty.cc": "int empty = 0;\n",
    "own/first.cc": "#include \"own/single.h\"\nstd::string First() { return Common() + \" \" + Single() + \" \" + __FILE__; }\n",
    "own/second.cc": "#include <cstdio>\nint main() { std::puts(First().c_str()); }\n",
}
SAID = "common single own/first.cc"


class CompileShTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-compile-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {**os.environ, "CCACHE_DIR": str(self.folder / "cache"), "CCACHE_CONFIGPATH": os.devnull}

    def lay(self, root):
        for path, text in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        (root / "scripts").mkdir()
        shutil.copytree(SCRIPTS, root / "scripts" / "cmake")

    def run_in(self, root, *command):
        done = subprocess.run(command, cwd=root, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{command}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def configure(self, root, compiler):
        self.run_in(root, "cmake", "-G", "Ninja", "-B", "build", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    f"-DMT_SANITIZE={'undefined' if 'clang' in compiler else ''}")

    def build(self, root):
        """What the program says, and how many of the calls ccache knew and did not."""
        self.run_in(root, "ccache", "--zero-stats")
        self.run_in(root, "cmake", "--build", "build", "--target", "two")
        counts = dict(line.split("\t") for line in self.run_in(root, "ccache", "--print-stats").splitlines())
        return self.run_in(root, "build/two").strip(), int(counts["direct_cache_hit"]), int(counts["cache_miss"])

    def check(self, compiler, of_headers):
        first, second, third = (self.folder / name for name in ("a", "b/c", "d"))
        for root in (first, second):
            self.lay(root)
            self.configure(root, compiler)
        said, hits, misses = self.build(first)
        self.assertEqual((said, hits), (SAID, 0))
        self.assertEqual(self.build(second), (SAID, misses - of_headers, of_headers))
        # In the compiled headers, there and back again, and in a header that a joined file includes.
        for path, word, next_word in (("common", "common", "changed"), ("common", "changed", "common"), ("common", "common", "another"),
                                      ("single", "single", "one")):
            header = second / f"own/{path}.h"
            header.write_text(header.read_text().replace(f'"{word}"', f'"{next_word}"'))
            self.assertIn(next_word, self.build(second)[0].split())
        # And in a folder that has never been built.
        shutil.copytree(second, third, ignore=shutil.ignore_patterns("build"))
        self.configure(third, compiler)
        self.assertEqual(self.build(third), ("another one own/first.cc", misses - of_headers, of_headers))
        self.assertEqual(self.build(first)[0], SAID)

    def test_another_folder_finds_what_was_compiled_and_nothing_else_with_gcc(self):
        self.check("g++", of_headers=0)

    def test_another_folder_finds_what_was_compiled_and_nothing_else_with_clang(self):
        # Its compiled headers name the folder, and are compiled in each.
        self.check("clang++-16", of_headers=1)

    def test_a_mistake_is_named_by_its_own_file(self):
        root = self.folder / "a"
        self.lay(root)
        (root / "own/first.cc").write_text("int First() { return wrong; }\n")
        self.configure(root, "g++")
        done = subprocess.run(["cmake", "--build", "build"], cwd=root, env=self.environment, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, re.escape(str(root)) + r"/own/first\.cc:1:\d+: error: ")


if __name__ == "__main__":
    unittest.main()
