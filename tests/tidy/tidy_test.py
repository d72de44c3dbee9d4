#!/usr/bin/env python3
"""The tidy checks, on small sources with known faults."""
import unittest

import tidy


class Functions(unittest.TestCase):
    def names(self, source):
        return [(name, lines) for name, _, lines in tidy.functions(source)]

    def test_plain_members_and_constructors(self):
        source = """
namespace a {
struct S {
  S() : x_(1) {}
  int get() const { return x_; }
  int x_ = 0;
};
int f(int a, int (*g)(int)) {
  auto h = [&](int b) {
    return b;
  };
  if (a) { return g(a); }
  return h(2);
}
Result<std::vector<int>> S::h(std::string_view s) const noexcept {
  return {};
}
}
"""
        self.assertEqual(self.names(source), [("S", 1), ("get", 1), ("f", 7), ("S::h", 3)])

    def test_what_is_no_function(self):
        source = "constexpr int k[] = {1, 2};\nenum class E : int { a, b };\nstruct T { int a{f(1)}; };\n"
        self.assertEqual(self.names(source), [])

    def test_braces_in_text_do_not_count(self):
        source = 'void f() {\n  g("{{{", \'{\', R"({)");  // {\n}\nvoid h() {}\n'
        self.assertEqual(self.names(source), [("f", 3), ("h", 1)])


class Checks(unittest.TestCase):
    def run_check(self, check, texts):
        findings = tidy.Findings()
        check(list(texts), texts, findings)
        return findings.lines

    def test_arrows(self):
        bad = {"src/base/x.cpp": '#include "engine/y.hpp"\n', "src/text/x.cpp": '#include <curl/curl.h>\n',
               "src/engine/x.cpp": '#include "backend/cpu/pool.hpp"\n'}
        self.assertEqual(len(self.run_check(tidy.check_includes, bad)), 3)
        good = {"src/cli/x.cpp": '#include "adze/adze.hpp"\n#include <vector>\n', "src/engine/x.cpp": '#include "x.hpp"\n'}
        self.assertEqual(self.run_check(tidy.check_includes, good), [])

    def test_words(self):
        bad = {"src/text/a.cpp": "std::cout << 1;\nassert(x);\nexit(1);\n", "src/text/b.cpp": "// TODO\n",
               "src/engine/c.cpp": "std::chrono::steady_clock::now();\n", "src/text/d.cpp": 'f("/work/x");\n',
               "src/text/e_util.cpp": ""}
        self.assertEqual(len(self.run_check(tidy.check_words, bad)), 7)
        good = {"src/cli/a.cpp": "exit(1);", "src/text/b.cpp": '// std::cout is not used\nf("exit(1)");\nstatic_assert(true);'}
        self.assertEqual(self.run_check(tidy.check_words, good), [])

    def test_lengths(self):
        long = "\n" * 700
        self.assertEqual(len(self.run_check(tidy.check_lengths, {"src/a/a.cpp": long})), 1)
        self.assertEqual(self.run_check(tidy.check_lengths, {"src/a/kernels/a.inl.h": long}), [])
        self.assertEqual(self.run_check(tidy.check_lengths, {"src/a/a.cpp": "// Longer than 600 lines: a table.\n" + long}), [])

    def test_limits(self):
        texts = {"src/base/limits.hpp": "inline constexpr int kA = 1;\ninline constexpr std::uint64_t kB = 2;\n",
                 "src/text/a.cpp": "x < limits::kA"}
        lines = self.run_check(tidy.check_limits, texts)
        self.assertEqual(len(lines), 1)
        self.assertIn("kB", lines[0])


if __name__ == "__main__":
    unittest.main()
