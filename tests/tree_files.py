"""The files of the tree, as git knows them: what the checks of sources read. Files that git ignores are none of the project's."""
import subprocess
import sys
from pathlib import Path

CPP = (".h", ".cc", ".cu", ".cuh")


def tree_files(root, suffixes):
    """Paths relative to `root`, tracked or new, with one of these suffixes. Ends the program where there are hardly any: `root` is
    no tree."""
    patterns = [f"*{suffix}" for suffix in suffixes]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
    files = sorted({path for path in listed if (Path(root) / path).is_file()})
    if len(files) < 10:
        sys.exit(f"only {len(files)} files ({' '.join(suffixes)}) found below {root}: wrong folder?")
    return files
