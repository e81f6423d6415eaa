"""The units as installed, checked by systemd's own tools without systemd as PID 1; their configuration against --help."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from install_tree import BIN, SOURCE, cache_value, prefix, root
import required

UNITS = {"mt-coordinator": 2.0, "mt-worker": 3.0}  # and the exposure that each may have at most
HOST_UNITS = pathlib.Path("/usr/lib/systemd/system")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def settings(unit):
    """[(key, value)] of a unit file, continuation lines joined."""
    text = (prefix() / f"lib/systemd/system/{unit}.service").read_text().replace("\\\n", " ")
    return [tuple(line.split("=", 1)) for line in text.splitlines() if re.match(r"[A-Za-z]+=", line)]


class UnitTest(unittest.TestCase):
    """Each unit in a root folder of its own that has the host's base units, and files at the programs' paths."""

    @classmethod
    def setUpClass(cls):
        required.need_programs("systemd-analyze", package="systemd")
        if not (HOST_UNITS / "sysinit.target").exists():
            required.missing(f"no base units in {HOST_UNITS} (Debian: systemd)")
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="mtunits-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.units = cls.root / "usr/lib/systemd/system"
        shutil.copytree(HOST_UNITS, cls.units, symlinks=True)
        bindir = cls.root / cache_value("CMAKE_INSTALL_PREFIX").lstrip("/") / "bin"
        bindir.mkdir(parents=True)
        for unit in UNITS:
            shutil.copy(prefix() / f"lib/systemd/system/{unit}.service", cls.units)
            if not os.access(BIN / unit, os.X_OK):
                raise RuntimeError(f"{BIN / unit}: not built")
            (bindir / unit).write_text("#!/bin/sh\n")  # verify looks for an executable file, and runs none
            (bindir / unit).chmod(0o755)

    def verify(self, unit):
        return run("systemd-analyze", f"--root={self.root}", "verify", f"{unit}.service")

    def test_verify_prints_nothing(self):
        for unit in UNITS:
            with self.subTest(unit=unit):
                self.assertEqual(self.verify(unit), (0, ""))

    def test_units_name_the_prefix_of_the_installation(self):
        """Which `cmake --install --prefix` decides, whatever the build was configured for."""
        for unit in UNITS:
            text = (root("--prefix", "/opt/mt") / f"opt/mt/lib/systemd/system/{unit}.service").read_text()
            self.assertEqual(set(re.findall(rf"=(\S+/{unit}) ", text)), {f"/opt/mt/bin/{unit}"})
            self.assertIn("Documentation=file:///opt/mt/share/doc/", text)
            self.assertIn("SystemCallFilter=@system-service", text)

    def test_verify_would_see_a_wrong_key(self):
        """An unknown key exits 0, so the output is what counts."""
        for unit in UNITS:
            text = (self.units / f"{unit}.service").read_text()
            bad = self.units / f"{unit}-bad.service"
            bad.write_text(text.replace("WatchdogSec=", "WatchdogSecs="))
            self.addCleanup(bad.unlink)
            self.assertIn("Unknown key", self.verify(bad.stem)[1])

    def test_exposure(self):
        for unit, limit in UNITS.items():
            with self.subTest(unit=unit):
                code, text = run("systemd-analyze", "--no-pager", f"--root={self.root}", "--offline=true", "security",
                                 f"{unit}.service")
                found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
                self.assertIsNotNone(found, text)
                self.assertEqual(code, 0)
                self.assertLessEqual(float(found.group(1)), limit, text)

    def test_a_disk_that_fails_keeps_no_unit_down(self):
        """Exit code 74 is tried again for ever; only what no new start mends ends the unit."""
        unit = dict(settings("mt-coordinator"))
        self.assertEqual(unit["Restart"], "always")
        self.assertEqual(unit["StartLimitIntervalSec"], "0")
        self.assertEqual(unit["RestartPreventExitStatus"].split(), ["64", "65"])

    def test_user_groups_and_folders_are_created(self):
        if os.geteuid() != 0:
            required.missing("needs root: systemd-tmpfiles sets owners")
        for folder in ("sysusers.d", "tmpfiles.d"):
            (self.root / "usr/lib" / folder).mkdir(parents=True)
            shutil.copy(prefix() / f"lib/{folder}/megatrain.conf", self.root / "usr/lib" / folder)
        (self.root / "etc").mkdir(exist_ok=True)
        code, text = run("systemd-sysusers", f"--root={self.root}", "megatrain.conf")
        self.assertEqual(code, 0, text)
        users = (self.root / "etc/passwd").read_text()
        groups = [line.split(":")[0] for line in (self.root / "etc/group").read_text().splitlines()]
        wanted = dict(settings("mt-worker"))
        self.assertRegex(users, rf"(?m)^{wanted['User']}:")
        for group in [wanted["Group"], *wanted["SupplementaryGroups"].split()]:
            self.assertIn(group, groups)
        self.assertEqual(run("systemd-tmpfiles", f"--root={self.root}", "--create", "megatrain.conf"), (0, ""))
        uid = int(re.search(rf"(?m)^{wanted['User']}:[^:]*:(\d+):", users).group(1))
        for path in wanted["ReadWritePaths"].split():
            folder = self.root / path.lstrip("-/")
            self.assertTrue(folder.is_dir(), f"{path}: not made by tmpfiles.d")
            self.assertEqual(folder.stat().st_uid, uid)


class ConfigurationTest(unittest.TestCase):
    """Every flag of a program is set by its unit or explained in its environment file, with the default of the unit."""

    def test_every_variable_has_a_default_and_is_explained(self):
        given = {"STATE_DIRECTORY", "LOGS_DIRECTORY", "CACHE_DIRECTORY", "RUNTIME_DIRECTORY"}  # by systemd
        for unit in UNITS:
            values = settings(unit)
            used = {name for key, value in values if key.startswith("Exec")
                    for name in re.findall(r"\$\{?([A-Z_]+)", value)} - given
            defaults = dict(value.split("=", 1) for key, value in values if key == "Environment")
            self.assertEqual(used, set(defaults), unit)
            text = self.environment_file(unit)
            for name, default in defaults.items():
                shown = "" if default == "%H" else default
                self.assertRegex(text, rf"(?m)^#{name}={re.escape(shown)}$", unit)
            named = set(re.findall(r"(?m)^#?(MT_[A-Z_]+)=", text))
            self.assertEqual(named, set(defaults), f"{unit}: a variable that the unit does not use")

    def test_check_config_sees_the_flags_of_the_start(self):
        for unit in UNITS:
            lines = {key: shlex.split(value) for key, value in settings(unit) if key.startswith("Exec")}
            checked = list(lines["ExecStartPre"])
            checked.remove("--check-config")
            self.assertEqual(checked, lines["ExecStart"], unit)

    def test_every_flag_is_explained(self):
        for unit in UNITS:
            code, text = run(str(BIN / unit), "--help")
            self.assertEqual(code, 0, text)
            flags = set(re.findall(r"(?m)^\s+(?:-\w,)?(--[a-z][a-z-]+)", text)) - {"--help", "--version", "--help-all"}
            self.assertIn("--log-level", flags, text)
            said = self.environment_file(unit) + "\n".join(value for _, value in settings(unit))
            self.assertEqual([f for f in sorted(flags) if not re.search(rf"{f}(?![a-z-])", said)], [], unit)
            known = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", said)) - {"--check-config"}
            self.assertEqual(sorted(known - flags), [], f"{unit}: flags that the program does not have")

    def environment_file(self, unit):
        return (SOURCE / "deploy/systemd" / f"{unit.removeprefix('mt-')}.env").read_text()


if __name__ == "__main__":
    unittest.main()
