"""Packages of PyPI, pinned with their hashes in pypi/NAME.txt and installed below the build folder, where nothing else finds them."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import required  # found by what install_tree, or the test, adds to the path

LOCKS = pathlib.Path(__file__).resolve().parent / "pypi"


def environment(below, name):
    """The environment for a Python program that imports the packages of pypi/NAME.txt; they are installed on the first call."""
    lock = LOCKS / f"{name}.txt"
    folder = pathlib.Path(below) / f"pypi-{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        install(lock, folder)
    return dict(os.environ, PYTHONPATH=str(folder))


def install(lock, folder):
    building = folder.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", "--only-binary=:all:",
                               "--require-hashes", "--target", str(building), "-r", str(lock)],
                              capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr:
            raise AssertionError(done.stderr)
        if done.returncode != 0:
            required.missing(f"the packages of {lock.name} cannot be installed (Debian: python3-pip): {done.stderr.strip()[-600:]}")
        try:
            building.rename(folder)
        except OSError:  # a test that runs beside this one was first
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
