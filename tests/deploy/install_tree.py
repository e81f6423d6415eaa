"""Installs the deploy component of the build into a folder, once per test process.

The programs are not copied: where a test needs them at their installed path it links them from the build.
"""
import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["MT_SOURCE_DIR"])
sys.path.append(str(SOURCE / "tests"))
BUILD = pathlib.Path(os.environ["MT_BINARY_DIR"])
BIN = pathlib.Path(os.environ["MT_BIN"])


def cache_value(name):
    """A variable of the build's CMakeCache.txt."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    raise KeyError(name)


@functools.cache
def root(*options):
    """The folder that stands for / of the machine that was installed to, with these options of `cmake --install`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mtinstall-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = subprocess.run(["cmake", "--install", str(BUILD), "--component", "deploy", *options], capture_output=True, text=True,
                          env=dict(os.environ, DESTDIR=str(folder)), check=False)
    if done.returncode != 0:
        raise RuntimeError(f"cmake --install: {done.stdout}{done.stderr}")
    return folder


def prefix():
    """Below root(): where the build installs to."""
    return root() / cache_value("CMAKE_INSTALL_PREFIX").lstrip("/")
