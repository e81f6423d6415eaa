"""Which programs a change reaches and which tests it affects: from the build files of a configured (not necessarily built) folder,
the includes of the sources, and what Python tests name. Used by dev.py."""
import os
import re
from collections import defaultdict, deque
from pathlib import Path

CODE = (".h", ".cc", ".cu", ".cuh", ".proto")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]|^import "([^"]+)"', re.MULTILINE)
GENERATED = re.compile(r"(megatrain/.*?)(?:\.grpc)?\.pb\.(?:h|cc)$")
# Programs that a program starts: what in a Python test's text says so, and which they are.
NODE = ("mt-worker", "mt-shim", "mt-rank", "mt-gpu-probe")
STARTS = [(re.compile(r"""["'/]mt-worker["']"""), NODE), (re.compile(r"""["']dev["'], ["']up["']"""), ("mt-coordinator", *NODE))]
# What tests read without naming each file: changed files -> tests.
READS = [
    (re.compile(r"\.md$"), re.compile(r"deploy\.DocsTest|retired_names")),
    (re.compile(r"^(deploy|dashboards)/"), re.compile(r"deploy\.(?!DockerTest)")),
    (re.compile(r"^docs/"), re.compile(r"deploy\.DocsTest")),
    (re.compile(r"\.(h|cc|cu|cuh|py|sh)$"), re.compile(r"check:")),
]


def statements_of(text):
    """(outputs, rule, inputs, order-only inputs) of each build statement of a build.ninja."""
    for line in text.replace("$\n", "").splitlines():
        if not line.startswith("build "):
            continue
        outputs, inputs = re.split(r"(?<!\$): ", line[len("build "):], maxsplit=1)
        inputs, _, order_only = inputs.partition(" || ")
        rule, *inputs = words_of(inputs)
        yield words_of(outputs), rule, inputs, words_of(order_only)


def words_of(part):
    return [word.replace("$ ", " ").replace("$:", ":") for word in re.split(r"(?<!\$) ", part) if word not in ("", "|")]


class Graph:
    """What depends on what, by absolute path."""

    def __init__(self, source, build, files):
        self.source, self.build, self.files = Path(source).resolve(), Path(build).resolve(), files
        self.users = defaultdict(set)
        self.products = set()  # programs and modules
        for path in files:
            if path.endswith(CODE):
                self.add_includes(str(self.source / path))
        for outputs, rule, inputs, order_only in statements_of((self.build / "build.ninja").read_text()):
            self.add_statement([self.place(path) for path in outputs], rule, [self.place(path) for path in inputs],
                               [self.place(path) for path in order_only])

    def place(self, path):
        return os.path.normpath(self.build / path)

    def add_statement(self, outputs, rule, inputs, order_only):
        if rule == "phony":
            return
        if "EXECUTABLE_LINKER" in rule or "MODULE_LIBRARY_LINKER" in rule or "SHARED_LIBRARY_LINKER" in rule:
            self.products.update(outputs)
            # A program waits for the programs and modules that it runs and loads; that of the shared compiled headers is none.
            inputs = inputs + [path for path in order_only
                               if path.startswith(f"{self.build}/") and not path.endswith(".a") and "/mt_headers_" not in path]
        for path in inputs:
            self.users[path].update(outputs)
            # Joined sources, by CMake and by kernels/cuda.
            if "/Unity/" in path and path.endswith(".cxx") or path.startswith(f"{self.build}/") and path.endswith(".cu"):
                self.add_includes(path)

    def add_includes(self, path):
        """The sources that a source includes, generated headers by the file that they are made of."""
        if not os.path.exists(path):
            return
        for match in INCLUDE.finditer(Path(path).read_text(errors="replace")):
            target = match[1] or match[2]
            generated = GENERATED.match(target)
            if generated or path.endswith(".proto"):
                target = "proto/" + (f"{generated[1]}.proto" if generated else target)
            self.users[os.path.normpath(self.source / target)].add(path)

    def reach(self, begins):
        """Everything that depends on one of these files, themselves included."""
        seen, queue = set(begins), deque(begins)
        while queue:
            for user in self.users.get(queue.popleft(), ()):
                if user not in seen:
                    seen.add(user)
                    queue.append(user)
        return seen

    def begins_of(self, path):
        """The files that a changed file speaks for: of the build's files all that they build, of data the sources that name it."""
        own = str(self.source / path)
        name, folder = os.path.basename(path), os.path.dirname(path)
        if name == "CMakeLists.txt" or path.endswith(".cmake") or name == "CMakePresets.json":
            everything = folder in ("", "tests", "scripts/cmake")
            return [own] + [str(self.source / other) for other in self.files
                            if other.endswith((".cc", ".cu", ".proto")) and (everything or os.path.dirname(other) == folder)]
        if path.endswith(CODE):
            return [own]
        named = [path] if path.endswith(".md") else [path, f'{folder}/"', f'{folder}"']
        return [own] + [str(self.source / other) for other in self.files if other.startswith("tests/") and other.endswith(CODE)
                        and folder and any(text in (self.source / other).read_text(errors="replace") for text in named)]

    def products_of(self, changed):
        """{program or module: the changed files that reach it}."""
        reasons = defaultdict(list)
        for path in changed:
            for product in self.reach(self.begins_of(path)) & self.products:
                reasons[product].append(path)
        return dict(reasons)


def script_of(test):
    """The Python file of a CTest entry, as it lists itself (ctest --show-only=json-v1); None where it is none."""
    command = test.get("command", [])
    folder = next((p["value"] for p in test.get("properties", ()) if p["name"] == "WORKING_DIRECTORY"), "")
    if "unittest" in command:
        module = command[-1].rsplit(".", 1)[0]  # without the class
        return os.path.join(folder, *module.split(".")) + ".py"
    return next((word for word in command if word.endswith(".py")), None)


def imports_of(script):
    """A Python file and the files that it imports, of its folder and the one above."""
    seen, queue = {script}, [script]
    while queue:
        path = queue.pop()
        for name in re.findall(r"^\s*(?:from|import) (\w+)", Path(path).read_text(), re.MULTILINE):
            folder = os.path.dirname(path)
            for other in (os.path.join(at, f"{name}.py") for at in (folder, os.path.dirname(folder))):
                if other not in seen and os.path.exists(other):
                    seen.add(other)
                    queue.append(other)
    return seen


def program_of(test):
    """The program of a GoogleTest entry, before it is built too."""
    if test["name"].endswith("_NOT_BUILT"):
        return test["name"].removesuffix("_NOT_BUILT")
    command = test.get("command", [])
    return os.path.basename(command[0]) if command else None


def programs_named(text, products):
    """Those of the products that a script runs."""
    named = {name for name in map(os.path.basename, products) if name in text and re.search(rf"""["'/]{re.escape(name)}["']""", text)}
    return named.union(*(programs for says, programs in STARTS if says.search(text)))


class Selection:
    """Tests by why they are run: {program: reasons} of all tests of a program, {test: reasons} of single ones."""

    def __init__(self, graph, changed, tests):
        self.graph, self.changed = graph, changed
        self.products = graph.products_of(changed)
        self.programs, self.single, self.builds = {}, {}, set(self.products)
        self.by_name = {os.path.basename(product): reasons for product, reasons in self.products.items()}
        for test in tests:
            self.take(test)

    def take(self, test):
        script, program = script_of(test), program_of(test)
        if script:
            return self.take_script(test["name"], script)
        if program in self.by_name:
            self.programs[program] = self.by_name[program]
            return
        text, build = " ".join(test.get("command", [])[1:]), f"{self.graph.build}/"
        if build in text:  # a command on something built
            read = [path for path in self.changed if any(built in text for built in self.graph.reach(self.graph.begins_of(path))
                                                         if built.startswith(build))]
            if read:
                self.single[test["name"]] = read

    def take_script(self, name, script):
        files = imports_of(script)
        text = "\n".join(Path(path).read_text() for path in sorted(files))
        is_check = os.path.dirname(script) == str(self.graph.source / "tests")
        kind = f"check:{name}" if is_check else name
        reasons = []
        for path in self.changed:
            base = os.path.basename(path)
            reads = any(changed.search(path) and (tests.match(name) or tests.match(kind)) for changed, tests in READS)
            names = not base.endswith((*CODE, "README.md", "CMakeLists.txt")) and re.search(rf"(?<![\w.]){re.escape(base)}\b", text)
            if str(self.graph.source / path) in files or reads or names:
                reasons.append(path)
        runs = set() if is_check else programs_named(text, self.graph.products)
        reasons += sorted(runs & set(self.by_name))
        if reasons:
            self.single[name] = reasons
            self.builds |= {product for product in self.graph.products if os.path.basename(product) in runs}

    def picks(self, test):
        return test["name"] in self.single or (script_of(test) is None and program_of(test) in self.programs)
