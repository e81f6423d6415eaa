"""What programs and the CUDA module need of a host: no program a library of CUDA, the module no driver, and its one symbol."""
import os
import pathlib
import re
import subprocess
import unittest

BIN = pathlib.Path(os.environ["MT_BIN"])
MODULE = BIN / "libmt_cuda.so"


def needed(path):
    said = subprocess.run(["readelf", "-dW", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", said)


class LinkTest(unittest.TestCase):
    def test_programs_need_nothing_of_cuda(self):
        for name in ("mt-rank", "mt-worker", "mt-shim", "mt-gpu-probe", "mt-coordinator", "mtctl"):
            libraries = needed(BIN / name)
            self.assertEqual(bool(libraries), name != "mt-shim", f"{name}: {libraries}")  # mt-shim is linked statically
            self.assertEqual([lib for lib in libraries if re.search(r"cuda|cublas|cudnn|nccl|nvidia|nvrtc", lib)], [], name)

    @unittest.skipUnless(MODULE.exists(), "built without CUDA")
    def test_the_module_needs_no_driver_to_load(self):
        libraries = needed(MODULE)
        self.assertIn("libcublasLt.so.13", libraries)
        self.assertTrue(any(lib.startswith("libcudnn") for lib in libraries), libraries)
        self.assertEqual([lib for lib in libraries if lib.startswith(("libcuda.so", "libnvidia"))], [])

    @unittest.skipUnless(MODULE.exists(), "built without CUDA")
    def test_the_module_shows_one_symbol(self):
        said = subprocess.run(["nm", "-D", "--defined-only", str(MODULE)], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line.split()[-1] for line in said.splitlines()], ["mt_cuda_make_backend"])


if __name__ == "__main__":
    unittest.main()
