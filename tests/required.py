"""What a test needs of its machine. Where that is missing the test is skipped; with MT_REQUIRE_ROOT=1, as in CI, it fails, so that no
check is silently gone."""
import os
import shutil
import unittest

STRICT = bool(os.environ.get("MT_REQUIRE_ROOT"))


def missing(why):
    """Ends the test, or the set-up of its class."""
    if STRICT:
        raise AssertionError(why)
    raise unittest.SkipTest(why)


def programs(*names, package):
    """As needs_root, of programs that are installed with the package."""
    absent = [name for name in names if shutil.which(name) is None]
    return unittest.skipIf(absent and not STRICT, f"{', '.join(absent)}: not installed (Debian: {package})")


def need_programs(*names, package):
    absent = [name for name in names if shutil.which(name) is None]
    if absent:
        missing(f"{', '.join(absent)}: not installed (Debian: {package})")
