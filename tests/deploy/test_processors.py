"""Under which core types of OpenBLAS tests are run besides the machine's own."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(os.environ["MT_SOURCE_DIR"]) / "scripts/processors.py"
spec = importlib.util.spec_from_file_location("processors", SCRIPT)
processors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(processors)

HASWELL = {"sse4_2", "avx", "avx2", "fma"}


class ProcessorsTest(unittest.TestCase):
    def test_what_a_machine_cannot_execute_is_left_out(self):
        self.assertEqual(processors.split(HASWELL), (["Nehalem", "Sandybridge", "Haswell", "Zen"], ["SkylakeX", "Cooperlake"]))
        self.assertEqual(processors.split(set())[0], [])

    def test_two_are_not_the_machines_own(self):
        able, _ = processors.split(HASWELL | set(processors.AVX512.split()))
        self.assertEqual(processors.two_of(able, "Prescott"), ["Haswell", "SkylakeX"])
        self.assertEqual(processors.two_of(able, "HASWELL"), ["SkylakeX", "Nehalem"])
        self.assertEqual(processors.two_of(["Nehalem"], "Nehalem"), [])

    def test_openblas_takes_each_of_them(self):
        """Its own word on which kernels it has: a name that it does not know would be its default, and no other processor."""
        listed = self.said().split()
        self.assertNotEqual(listed, [])
        for name in listed:
            self.assertEqual(self.said("--own", OPENBLAS_CORETYPE=name).strip().lower(), name.lower())

    def said(self, *args, **env):
        return subprocess.run([sys.executable, str(SCRIPT), *args], env=dict(os.environ, **env), capture_output=True, text=True, timeout=60,
                              check=True).stdout


if __name__ == "__main__":
    unittest.main()
