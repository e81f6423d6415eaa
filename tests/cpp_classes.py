"""Reads the classes of C++ files and the functions that each declares. No compiler: it follows tokens and brackets, which is
enough for declarations in this tree's style and takes a few seconds for all of it. Macros are not expanded."""
import re
from dataclasses import dataclass, field

LEXER = re.compile(r"""
    (?P<skip>//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<literal>R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
  | (?P<token>[A-Za-z_]\w*|\d(?:[\w.]|'\w)*|::|->|\S)
""", re.VERBOSE | re.MULTILINE | re.DOTALL)
PAIRS = {"(": ")", "{": "}", "[": "]"}
# An annotation such as GUARDED_BY(mutex_), which only looks like a function.
ANNOTATION = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$")
GETTER = re.compile(r"return (?:[*&] )?[a-z]\w*(?: \( \))?(?: (?:\.|->) [A-Za-z]\w*(?: \( \))?)* ;$")
NO_METHOD = {"using", "typedef", "friend", "static_assert", "enum"}


@dataclass
class Method:
    """Kinds: plain; pure (= 0); getter (only returns a member, or what that answers without arguments); special (constructor,
    destructor, operator)."""
    name: str
    kind: str


@dataclass
class Class:
    name: str  # with the classes around it, without namespaces
    line: int
    methods: list = field(default_factory=list)

    def count(self, *kinds):
        return sum(method.kind in kinds for method in self.methods)


def tokens_of(text):
    """Tokens and the line of each. A literal is the token 0; comments and preprocessor lines are left out."""
    tokens, lines, line, last = [], [], 1, 0
    for match in LEXER.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        if match["skip"] is None:
            tokens.append(match["token"] or "0")
            lines.append(line)
    return tokens, lines


def after(tokens, at):
    """The index after the bracket that closes the one at `at`."""
    opening, closing, depth = tokens[at], PAIRS[tokens[at]], 0
    for index in range(at, len(tokens)):
        depth += (tokens[index] == opening) - (tokens[index] == closing)
        if depth == 0:
            return index + 1
    raise ValueError(f"{opening} without {closing}")


def after_angles(tokens, at):
    """The same of a template's brackets."""
    depth = 0
    while True:
        if tokens[at] in PAIRS:
            at = after(tokens, at)
            continue
        depth += (tokens[at] == "<") - (tokens[at] == ">")
        at += 1
        if depth == 0:
            return at


def class_head(tokens, at):
    """Of a definition that begins at `at` (class or struct): its name and the index of its {. None for anything else."""
    if at > 0 and tokens[at - 1] == "enum":
        return None
    at += 1
    name = []
    while at < len(tokens):
        token = tokens[at]
        if token == "[" or (token == "(" and name and name[-1] == "alignas"):
            at = after(tokens, at)
            name = [] if token == "(" else name
        elif token == "<" and name:
            at = after_angles(tokens, at)
        elif re.match(r"[A-Za-z_]\w*$|::$", token):
            name.append(token)
            at += 1
        else:
            break
    if at >= len(tokens) or tokens[at] not in "{:":
        return None
    while tokens[at] != "{":
        at += 1
    return "".join(part for part in name if part != "final"), at


class Reader:
    def __init__(self, text):
        self.tokens, self.lines = tokens_of(text)
        self.classes = []

    def scan(self, at, end, inside=""):
        """Finds the classes between two tokens, in functions too."""
        while at < end:
            head = class_head(self.tokens, at) if self.tokens[at] in ("class", "struct") else None
            at = self.read_class(at, head, inside) if head else at + 1

    def read_class(self, at, head, inside):
        """Reads a class up to its closing bracket; returns the index after it."""
        name, opening = head
        own = Class(f"{inside}::{name}" if inside else name, self.lines[at])
        self.classes.append(own)
        end = after(self.tokens, opening)
        at = opening + 1
        while at < end - 1:
            at = self.read_member(at, end - 1, own)
        return end

    def read_member(self, at, end, own):
        token = self.tokens[at]
        if token in ("public", "protected", "private"):
            return at + 2
        if token == "template":
            return after_angles(self.tokens, at + 1)
        if token in ("class", "struct"):
            head = class_head(self.tokens, at)
            if head:
                return self.read_class(at, head, own.name)
        if token in NO_METHOD:
            return self.end_of(at, end)
        parameters = self.parameters_of(at, end)
        if parameters is None:
            return self.end_of(at, end)
        return self.read_method(at, parameters, end, own)

    def end_of(self, at, end):
        """After the ; of a declaration that is no method; a friend's body ends it too."""
        ends_with_body = self.tokens[at] == "friend"
        while at < end and self.tokens[at] != ";":
            body = self.tokens[at] == "{"
            at = after(self.tokens, at) if self.tokens[at] in PAIRS else at + 1
            if body and ends_with_body:
                return at
        return at + 1

    def parameters_of(self, at, end):
        """The index of the ( of a function's parameters in the declaration that begins here; None for anything else."""
        begin = at
        while at < end and self.tokens[at] not in ("=", ";", "{"):
            token, before = self.tokens[at], self.tokens[at - 1] if at > begin else ""
            if token == "operator":
                while self.tokens[at + 1] != "(":
                    at += 1
                return at + 3 if self.tokens[at] == "operator" else at + 1  # operator()(...)
            if token == "<":
                at = after_angles(self.tokens, at)
            elif token == "(" and not ANNOTATION.match(before) and before not in ("alignas", "decltype", "explicit"):
                pointer = self.tokens[at + 1] in "*&" and self.tokens[at + 2] != ")"
                return None if pointer or not re.match(r"[A-Za-z_]\w*$", before) else at
            else:
                at = after(self.tokens, at) if token in PAIRS else at + 1
        return None

    def read_method(self, begin, parameters, end, own):
        at = after(self.tokens, parameters)
        tail, in_initializers, body = [], False, []
        while at < end and self.tokens[at] != ";":
            token = self.tokens[at]
            if token == "{" and not (in_initializers and re.match(r"[\w>]+$", self.tokens[at - 1])):
                body = self.tokens[at + 1:after(self.tokens, at) - 1]
                self.scan(at + 1, after(self.tokens, at) - 1, own.name)
                at = after(self.tokens, at) - 1
                break
            in_initializers = in_initializers or token == ":"
            tail.append(token)
            at = after(self.tokens, at) if token in PAIRS else at + 1
        name = self.tokens[parameters - 1]
        simple = own.name.rsplit("::", 1)[-1]
        if name == simple or "operator" in self.tokens[begin:parameters]:
            kind = "special"
        elif tail[-2:] == ["=", "0"]:
            kind = "pure"
        elif self.tokens[parameters + 1] == ")" and GETTER.match(" ".join(body)):
            kind = "getter"
        else:
            kind = "plain"
        own.methods.append(Method(name, kind))
        return at + 1


def classes_of(text):
    """Every class that the text defines, those in classes and functions too."""
    reader = Reader(text)
    reader.scan(0, len(reader.tokens))
    return reader.classes


SAMPLE = r"""
#define X class Macro { void A(); };
template <class T> struct Alone { T t; };
enum class Color { kRed };
class Declared;
// class Comment { void A(); };
namespace n {
class alignas(8) Job final : public Base<std::map<int, int>>, private Other {
 public:
  explicit Job(int id) : id_{id}, map_({{1, 2}}) { Start(); }
  Job(const Job&) = delete;
  ~Job() override;
  bool operator==(const Job&) const = default;
  void operator()(int x) const;
  operator bool() const { return id_ != 0; }
  int id() const { return id_; }
  const std::string& name() const { return *state_->name; }
  Clock* clock() { return clock_.get(); }
  size_t num_parts() const { return state_->parts.size(); }
  int Next() const { return parts_.After(id_); }
  int Twice() const { return 2 * id_; }
  int At(int i) const { return i_; }
  [[nodiscard]] virtual Status Run(std::function<void(int)> then = nullptr, char c = ')') = 0;
  template <class T, int N = (3 > 2)> std::array<T, N> Make(T t) requires Number<T>;
  auto Trailing() const -> std::vector<int> { struct Local { void L(); }; return {}; }
  static void Log(const char* text = "}") LOCKS_EXCLUDED(mutex_);
  friend bool operator<(const Job& a, const Job& b) { return a.id_ < b.id_; }
  using Call = std::function<void(Job*)>;
  struct Part : Base { int n = 0; void Cut(); };
 private:
  enum Kind { kA = int(3) };
  std::function<void(int)> callback_;
  void (*pointer_)(int) = nullptr;
  int limit_ GUARDED_BY(mutex_) = Default();
  std::vector<int> list_{1, 2};
  alignas(16) int lanes_[4];
  int id_;
};
}
class Job::Impl { void Private(); };
"""


def self_test():
    """The reader must see each kind of member as what it is; a miss here would let a class grow unseen."""
    found = {own.name: [f"{method.name} {method.kind}" for method in own.methods] for own in classes_of(SAMPLE)}
    assert set(found) == {"Alone", "Job", "Job::Part", "Job::Local", "Job::Impl"}, found
    assert found["Job::Part"] == ["Cut plain"] and found["Job::Impl"] == ["Private plain"] and found["Job::Local"] == ["L plain"]
    plain = [text.split()[0] for text in found["Job"] if text.endswith("plain")]
    assert plain == ["Next", "Twice", "At", "Make", "Trailing", "Log"], plain
    getters = [text.split()[0] for text in found["Job"] if text.endswith("getter")]
    assert getters == ["id", "name", "clock", "num_parts"], getters
    assert sum(text.endswith("special") for text in found["Job"]) == 6 and "Run pure" in found["Job"], found["Job"]
    assert classes_of("\n\nclass A {};")[0].line == 3
