#!/usr/bin/env python3
"""House rules that a compiler does not check. Run by ctest; prints every finding and fails when there is one.

    tidy.py ROOT [--objects FILE]

ROOT is the repository. --objects names a file with the paths of the instruction-set objects, separated by semicolons or
newlines: none of them may define a weak symbol. Only the standard library is used.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

# ---- the import table (ARCHITECTURE.md) ------------------------------------------------------------------------------
# A room may include headers of these rooms and its own. "adze" is the public header.
IMPORTS = {
    "base": set(),
    "tensor": {"base"},
    "format": {"base", "tensor"},
    "quantise": {"base", "tensor", "format"},
    "text": {"base", "tensor"},
    "hub": {"base", "format"},
    "ops": {"base", "tensor"},
    "model": {"base", "tensor", "ops", "format", "text"},
    "convert": {"base", "tensor", "format", "quantise", "text", "ops", "model"},
    "backend": {"base", "tensor", "ops", "model"},
    "cache": {"base", "tensor", "ops", "model"},
    "sample": {"base", "tensor", "ops", "model"},
    "speculate": {"base", "tensor", "ops", "model", "backend", "cache", "sample"},
    "tune": {"base", "tensor", "ops", "model", "backend"},
    "engine": {"base", "tensor", "ops", "model", "format", "text", "backend", "tune", "cache", "sample", "speculate", "adze"},
    "cli": {"base", "tensor", "format", "quantise", "text", "hub", "model", "convert", "backend", "tune", "engine", "adze"},
    "adze": {"base"},
}

# Heavy or foreign headers: where they may be included. A library stays behind one wall.
LIBRARY_WALLS = {
    r"CLI/": {"src/cli/arguments.cpp"},
    r"histedit\.h": {"src/cli/line_editor.cpp"},
    r"curl/": {"src/hub/"},
    r"openssl/": {"src/hub/"},
    r"zlib\.h": {"src/hub/"},
    r"pcre2": {"src/text/"},
    r"simdjson\.h": {"src/text/", "src/format/"},
    r"immintrin\.h": {"src/backend/cpu/", "lab/"},
    r"arm_neon\.h": {"src/backend/cpu/"},
    r"cuda": {"src/backend/cuda/"},
    r"mlx/": {"src/backend/mlx/"},
    r"nlohmann/json\.hpp": {".cpp"},
    r"spdlog/": {".cpp"},
}

# Families and backends are named in their registries only.
NAMED_ONCE = [
    (r'"backend/(cpu|cuda|mlx)/', re.compile(r"^src/backend/|^tests/|^lab/"),
     "only backend/registry.cpp names backends"),
    (r'"model/families/', re.compile(r"^src/model/(registry\.cpp|families/)|^tests/"),
     "only model/registry.cpp names families"),
]

# ---- banned words: pattern, what instead, files where it is right -----------------------------------------------------
NOT_CLI = re.compile(r"^src/cli/")
BANNED = [
    (r"\b(TODO|FIXME|XXX)\b", "do it, or write an issue", None),
    (r"\busing namespace std\b", "write std::", None),
    (r"\bstd::endl\b", "write '\\n'", None),
    (r"(?<![\w.:>])(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atof|atol)\s*\(", "use std::string, fmt or std::from_chars", None),
    (r"\bstd::(regex|async|function<void\(\)> *handler)\b", "use text/pattern.hpp, a thread team, or a plain function", None),
    (r"(?<![\w_])assert\s*\(", "use ADZE_CHECK, which is always on", None),
    (r"\b(std::rand|srand|random_device)\b", "seeds come in as arguments", re.compile(r"^src/cli/|^src/engine/host\.cpp$")),
    (r"\bstd::(cout|cerr|clog)\b|(?<![\w:.>])(printf|puts|putchar)\s*\(|\bstd::(printf|puts)\s*\(", "only cli/ prints", re.compile(r"^src/cli/|^lab/")),
    (r"\bstd::(exit|quick_exit|terminate)\s*\(|(?<![\w:.>_])exit\s*\(", "only cli/ ends the program", NOT_CLI),
    (r"(?<![\w.>])(std::)?abort\s*\(", "use ADZE_CHECK", re.compile(r"^src/base/check\.cpp$")),
    (r"\bgetenv\s*\(", "settings come in as arguments", NOT_CLI),
    (r"/work/|/tmp/|\.\./shared", "no paths of one machine", None),
]
# The core is deterministic: time and seeds are arguments. The API's own file measures the statistics it reports.
CORE = re.compile(r"^src/(engine|cache|model|speculate|sample)/")
CORE_CLOCK_EXEMPT = {"src/engine/host.cpp"}  # hands them to the engine as functions
VAGUE_NAME = re.compile(r"^(\w*_)?(util|utils|helper|helpers|manager|handler|misc|common)(_\w*)?$")

SOURCE_SUFFIXES = {".cpp", ".hpp", ".h", ".inl.h"}
MAX_LINES = 600
MAX_KERNEL_LINES = 900
MAX_FUNCTION_LINES = 100
REASON_MARK = "Longer than"  # at the top of a file that is over the limit: "// Longer than 600 lines: ..."


class Findings:
    def __init__(self):
        self.lines = []

    def add(self, path, line, text):
        self.lines.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")


def blank_out(source, strings=True):
    """The source with comments (and string contents) replaced by spaces; line numbers stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)

    def keep_shape(match):
        text = match.group(0)
        if text.startswith(("//", "/*")) or strings:
            return re.sub(r"[^\n]", " ", text)
        return text

    # A digit separator (1'000) is no character literal.
    source = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", source)
    return pattern.sub(keep_shape, source)


def functions(source):
    """(name, first line, lines) of every function body in C++ source, lambdas inside it included."""
    text = blank_out(source)
    text = re.sub(r"(?m)^[ \t]*#.*(?:\\\n.*)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    found = []
    stack = []  # per open brace: (name or None, line)
    start = 0  # where the text before the next brace begins
    depth_of_function = None
    line = 1
    for i, c in enumerate(text):
        if c == "\n":
            line += 1
        elif c == "{":
            name = None
            if depth_of_function is None:
                head = text[start:i].strip()
                signature = re.search(r"([~\w:<>]+|operator[^\s\w]{1,3}|operator\s+\w+)\s*\((?:[^(){}]|\([^(){}]*\))*\)\s*"
                                      r"(?:const|noexcept|override|final|mutable|->\s*[\w:<>,&*\s]+|:\s.*|\s)*$", head, re.S)
                kind = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", head)
                if signature and not kind and not head.endswith("="):
                    name = signature.group(1)
                    depth_of_function = len(stack)
            stack.append((name, line))
            start = i + 1
        elif c == "}":
            if stack:
                name, first = stack.pop()
                if name is not None:
                    found.append((name, first, line - first + 1))
                    depth_of_function = None
            start = i + 1
        elif c == ";":
            start = i + 1
    return found


def tracked_files(root):
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], check=True, capture_output=True).stdout
        names = [name for name in out.decode().split("\0") if name]
        if names:
            return [name for name in names if (root / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        pass
    skip = {".git", ".venv", "build"}
    return [str(p.relative_to(root)) for p in root.rglob("*")
            if p.is_file() and not skip & set(p.relative_to(root).parts) and not p.relative_to(root).parts[0].startswith("build-")]


def is_source(name):
    return name.startswith(("src/", "include/", "tests/", "lab/")) and name.endswith((".cpp", ".hpp", ".h")) \
        and not name.startswith("tests/data/")


def room_of(name):
    parts = name.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[0] == "include":
        return "adze"
    return None


def check_includes(files, texts, findings):
    for name in files:
        room = room_of(name)
        for number, line in enumerate(texts[name].splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if not match:
                continue
            header = match.group(2)
            target = header.split("/")[0] if match.group(1) == '"' and "/" in header else None
            if room in IMPORTS and target in IMPORTS and target != room and target not in IMPORTS[room]:
                if not (name.endswith("_test.cpp")):
                    findings.add(name, number, f"{room} may not include {header}: the arrows go the other way")
            for pattern, places in LIBRARY_WALLS.items():
                if name.startswith("src/") and re.match(pattern, header) and \
                        not any(name.startswith(p) or name.endswith(p) for p in places):
                    findings.add(name, number, f"<{header}> belongs behind the wall of {', '.join(sorted(places))}")
            for pattern, allowed, why in NAMED_ONCE:
                if re.search(pattern, line) and not allowed.search(name):
                    findings.add(name, number, why)
        if room is not None and room not in IMPORTS:
            findings.add(name, 0, f"the room '{room}' is not in the import table")


def check_words(files, texts, findings):
    for name in files:
        if not name.startswith(("src/", "include/")):
            continue
        code = blank_out(texts[name], strings=False)
        bare = blank_out(texts[name])
        for pattern, instead, exempt in BANNED:
            if exempt is not None and exempt.search(name):
                continue
            if name.endswith("_test.cpp") and instead.startswith(("only cli", "seeds", "settings")):
                continue
            # Words in strings count only for paths; left-overs count in comments too.
            haystack = texts[name] if "TODO" in pattern else code if "/work/" in pattern else bare
            for match in re.finditer(pattern, haystack):
                number = haystack.count("\n", 0, match.start()) + 1
                findings.add(name, number, f"'{match.group(0).strip()}': {instead}")
        if CORE.search(name) and name not in CORE_CLOCK_EXEMPT and not name.endswith("_test.cpp"):
            for match in re.finditer(r"_clock\b|\bclock_gettime\b|\bgettimeofday\b|\bstd::time\b|\bmt19937\b", bare):
                number = bare.count("\n", 0, match.start()) + 1
                findings.add(name, number, f"'{match.group(0)}': the core has no clocks and no randomness of its own")
        stem = Path(name).name.split(".")[0]
        if VAGUE_NAME.match(stem):
            findings.add(name, 0, "a file is named after what it holds, not 'util', 'helper', 'manager' or 'handler'")


def check_paths(root, files, findings):
    for name in files:
        if name.startswith((".ci/", "tests/tidy/", "tests/data/")) or is_source(name) and name.startswith("src/"):
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in re.finditer(r"/work/|(?<![\w.])/tmp/|\.\./shared", text):
            findings.add(name, text.count("\n", 0, match.start()) + 1,
                         f"'{match.group(0)}': the project must stand without this machine")


def check_lengths(files, texts, findings):
    for name in files:
        lines = texts[name].count("\n") + 1
        limit = MAX_KERNEL_LINES if "/kernels/" in name or "/simd/" in name else MAX_LINES
        if lines > limit and REASON_MARK not in "\n".join(texts[name].splitlines()[:12]):
            findings.add(name, 0, f"{lines} lines, over {limit}: split it by responsibility, or say why not at its top "
                                  f"('// {REASON_MARK} {limit} lines: ...')")


def check_functions(root, files, texts, findings):
    """Functions over the limit are listed by name in long_functions.txt; the list may only shrink."""
    listed_path = root / "tests/tidy/long_functions.txt"
    listed = {}
    for line in listed_path.read_text().splitlines() if listed_path.exists() else []:
        if line and not line.startswith("#"):
            place, lines = line.rsplit(" ", 1)
            listed[place] = int(lines)
    total = long_total = 0
    seen = set()
    for name in files:
        if not name.startswith(("src/", "include/")):
            continue
        for function, first, lines in functions(texts[name]):
            total += lines
            if lines <= MAX_FUNCTION_LINES:
                continue
            long_total += lines
            place = f"{name} {function}"
            seen.add(place)
            if lines > listed.get(place, 0):
                findings.add(name, first, f"{function} has {lines} lines, over {listed.get(place, MAX_FUNCTION_LINES)}: "
                                          f"split it")
    for place in sorted(set(listed) - seen):
        findings.add("tests/tidy/long_functions.txt", 0, f"'{place}' is short or gone: remove the line")
    share = 100 * long_total / max(total, 1)
    print(f"tidy: {len(seen)} functions over {MAX_FUNCTION_LINES} lines, {share:.1f} % of {total} lines in functions")


def check_limits(files, texts, findings):
    name = "src/base/limits.hpp"
    names = re.findall(r"constexpr\s+[\w:]+\s+(k\w+)\s*=", texts.get(name, ""))
    rest = "\n".join(text for file, text in texts.items() if file != name and file.startswith("src/"))
    for limit in names:
        if not re.search(rf"\b{limit}\b", rest):
            findings.add(name, 0, f"{limit} bounds nothing: use it or remove it")


def check_dead_files(root, files, all_files, texts, findings):
    lists = "\n".join((root / f).read_text() for f in all_files if Path(f).name == "CMakeLists.txt")
    included = set()
    for text in texts.values():
        included.update(re.findall(r'#\s*include\s+"([^"]+)"', text))
    included_names = {Path(i).name for i in included}
    for name in files:
        base = Path(name).name
        if name.endswith(".cpp"):
            if base not in lists:
                findings.add(name, 0, "no CMakeLists.txt builds it")
        elif base not in included_names and not name.startswith("include/"):
            findings.add(name, 0, "nothing includes it")


def check_weak_symbols(objects, findings):
    for path in objects:
        out = subprocess.run(["nm", "--demangle", path], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            match = re.match(r"[0-9a-f]+ ([WVu]) (.*)", line)
            if match:
                findings.add(Path(path).name, 0, f"defines the weak symbol '{match.group(2)}': code for a wide instruction "
                                                 f"set could be picked up by the whole program")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--objects", type=Path)
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    all_files = tracked_files(root)
    files = [name for name in all_files if is_source(name)]
    texts = {name: (root / name).read_text(encoding="utf-8") for name in files}
    findings = Findings()
    check_includes(files, texts, findings)
    check_words(files, texts, findings)
    check_paths(root, all_files, findings)
    check_lengths(files, texts, findings)
    check_functions(root, files, texts, findings)
    check_limits(files, texts, findings)
    check_dead_files(root, files, all_files, texts, findings)
    if arguments.objects:
        objects = [o for o in re.split(r"[;\n]", arguments.objects.read_text()) if "/isa/" in o]
        if not objects:
            findings.add(arguments.objects, 0, "names no instruction-set object")
        check_weak_symbols(objects, findings)
    for line in findings.lines:
        print(line)
    print(f"tidy: {len(files)} files, {len(findings.lines)} findings")
    return 1 if findings.lines else 0


if __name__ == "__main__":
    sys.exit(main())
