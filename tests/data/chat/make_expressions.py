#!/usr/bin/env python3
"""Makes small random templates and what Python's jinja2, set up as transformers does, renders from them.

Usage: make_expressions.py SEED COUNT > expressions.jsonl      (needs jinja2 3.1.6)
Templates whose result depends on memory addresses or on an order that Python does not promise are left out.
"""
import json
import random
import re
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

INPUT = {
    "s": "Hello, World", "t": "  naïve Straße ǅ ﬁ İ 你好 👩🏽‍💻\t", "e": "", "q": "it's \"q\" \\ \n", "n": 7, "m": -3,
    "z": 0, "f": 2.5, "g": 1e22, "b": True, "no": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [],
    "d": {"b": 1, "a": [1, {"x": None}], "C": "v"}, "de": {},
    "rows": [{"k": "x", "v": 1}, {"k": "Y", "v": 2.5}, {"k": "x", "v": None}, {"v": 4}], "big": 123456789012345678901234567890,
    "lines": "one\ntwo\r\n\n  three\n", "csv": "a,b,,c", "num": "42", "flt": "3.75e2", "nest": [[1, [2, 3]], [], [[4]]],
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


R = random.Random()
pick = lambda *xs: R.choice(xs)
STRINGS = ["s", "t", "e", "q", "lines", "csv", "num", "flt", "'a'", "'abc'", "''", "'x y'", "'-'", "','", "'l'", "'Ab'", "'ß'", "'\\n'", "'ΑΣ'"]
INTS = ["n", "m", "z", "0", "1", "2", "-1", "10", "3", "-7", "big"]
FLOATS = ["f", "g", "0.1", "2.0", "-1.5", "1e-7", "123456.789"]
LISTS = ["l", "ls", "le", "rows", "nest", "[1, 2.0, 'x', none, true]", "(1, 2)", "range(5)", "range(9, 0, -3)", "d.items()", "d.keys()", "[n, m, z]"]
DICTS = ["d", "de", "{'a': 1, 2: 'b', none: [], 1.5: {}}", "dict(a=1, b='x')", "rows[0]"]


def string(depth):
    if depth <= 0:
        return pick(*STRINGS)
    x = lambda: string(depth - 1)
    i = lambda: integer(depth - 2)
    return pick(
        lambda: pick(*STRINGS), lambda: f"({x()} + {x()})", lambda: f"({x()} ~ {value(depth - 1)})", lambda: f"{x()}[{i()}:{i()}]",
        lambda: f"{x()}[{i()}:{i()}:{pick(-1, 2, -2, 1)}]", lambda: f"{x()}[{i()}]", lambda: f"{x()}.{pick('upper', 'lower', 'title', 'capitalize', 'swapcase', 'casefold', 'strip', 'lstrip', 'rstrip')}()",
        lambda: f"{x()}.{pick('strip', 'lstrip', 'rstrip')}({x()})", lambda: f"{x()}.replace({x()}, {x()}{pick('', ', 1', ', 2')})",
        lambda: f"{x()} | {pick('upper', 'lower', 'title', 'capitalize', 'trim', 'reverse', 'string', 'e', 'striptags', 'urlencode', 'safe', 'forceescape')}",
        lambda: f"({x()} | replace({x()}, {x()}))", lambda: f"({value(depth - 1)} | string)", lambda: f"({value(depth - 1)} | tojson{pick('', '(indent=2)', '(ensure_ascii=true)', '(sort_keys=true)', '(separators=(chr, chr))'.replace('chr, chr', repr(',') + ', ' + repr(':')))})",
        lambda: f"({lst(depth - 1)} | join({x()}))", lambda: f"{x()}.join({pick('ls', 'csv.split(' + repr(',') + ')', 's', 'l')})",
        lambda: f"({x()} * {pick('0', '2', '3', '-1')})", lambda: f"{x()}.{pick('center', 'ljust', 'rjust')}({pick(0, 3, 8, 15)}{pick('', ', ' + repr('*'))})", lambda: f"{x()}.zfill({pick(0, 6)})",
        lambda: f"('{pick('%s', '%5s|', '%-6s|', '%r', '%.2s', '%%%s')}' % {value(depth - 1)})" if False else f"('{pick('%s', '%5s|', '%-6s|', '%r', '%.2s', '%%%s')}' % ({value(depth - 1)},))",
        lambda: f"('{pick('%d', '%5d|', '%05d', '%+d', '%-5d|', '%x', '%#x', '%o', '%X', '% d')}' % {pick('n', 'm', 'z', 'f', '255', 'b', 's', 'big')})",
        lambda: f"('{pick('%f', '%.2f', '%8.3f|', '%e', '%g', '%.3g', '%+.1f', '%G', '%08.2f')}' % {number(depth - 1)})",
        lambda: "'" + pick("{}", "{!r}", "{:>6}|", "{:<6}|", "{:^7}|", "{:*^9}|", "{0}{0}", "{:.2}", "{:s}") + f"'.format({value(depth - 1)})",
        lambda: "'" + pick("{:d}", "{:5d}|", "{:05d}", "{:+}", "{:,}", "{:_}", "{:x}", "{:#b}", "{:o}", "{:e}", "{:.3f}", "{:g}", "{:%}", "{:n}", "{:.3}", "{:10.2f}|", "{:,.2f}", "{:c}") + f"'.format({number(depth - 1)})",
        lambda: f"({x()} | indent({pick('2', '4, true', '2, false, true', repr('> '))}))", lambda: f"({x()} | truncate({pick('5', '8, true', '6, false, ' + repr('~'), '5, true, ' + repr('') + ', 0')}))",
        lambda: f"({x()} | center({pick('9', '20')}))", lambda: f"({x()} | wordwrap({pick('5', '8', '12, false', '4')}))", lambda: f"({x()} | default({x()}{pick('', ', true')}))",
        lambda: f"({x()} if {value(depth - 1)} else {x()})", lambda: f"{x()}.{pick('removeprefix', 'removesuffix')}({x()})", lambda: f"({x()} | format({value(depth - 1)}))", lambda: f"{x()}.expandtabs({pick('', '2')})",
        lambda: f"({integer(depth - 1)} | filesizeformat{pick('', '(true)')})",
    )()


def integer(depth):
    if depth <= 0:
        return pick(*INTS)
    i = lambda: integer(depth - 1)
    return pick(
        lambda: pick(*INTS), lambda: f"({i()} {pick('+', '-', '*', '//', '%')} {i()})", lambda: f"({value(depth - 1)} | length)", lambda: f"({pick(string, number)(depth - 1)} | int{pick('', '(5)', '(0, 16)')})",
        lambda: f"{string(depth - 1)}.{pick('find', 'rfind', 'count', 'index')}({string(depth - 2)}{pick('', ', 1', ', -3', ', 0, 4')})", lambda: f"({lst(depth - 1)} | {pick('sum', 'count', 'min', 'max', 'first', 'last')})", lambda: f"(-{i()})",
        lambda: f"({i()} ** {pick('0', '2', '3')})", lambda: f"({i()} | abs)", lambda: f"({string(depth - 1)} | wordcount)", lambda: f"{lst(depth - 1)}.{pick('index', 'count')}({value(depth - 2)})",
    )()


def number(depth):
    if depth <= 0:
        return pick(*INTS, *FLOATS)
    x = lambda: number(depth - 1)
    return pick(
        lambda: pick(*FLOATS), lambda: integer(depth), lambda: f"({x()} {pick('+', '-', '*', '/', '//', '%')} {x()})", lambda: f"({x()} ** {pick('0', '2', '0.5', '-1')})",
        lambda: f"({x()} | round{pick('', '(1)', '(2)', '(-1)', '(0, ' + repr('ceil') + ')', '(1, ' + repr('floor') + ')')})", lambda: f"({value(depth - 1)} | float{pick('', '(1.5)')})", lambda: f"({x()} | abs)", lambda: f"(-{x()})",
    )()


def lst(depth):
    if depth <= 0:
        return pick(*LISTS)
    x = lambda: lst(depth - 1)
    return pick(
        lambda: pick(*LISTS), lambda: f"[{value(depth - 1)}, {value(depth - 1)}]", lambda: f"({value(depth - 1)},)", lambda: f"({x()} + {x()})", lambda: f"{x()}[{integer(depth - 2)}:{pick('', integer(depth - 2))}]", lambda: f"{x()}[::{pick(-1, 2)}]",
        lambda: f"{string(depth - 1)}.{pick('split', 'rsplit')}({pick('', string(depth - 2), string(depth - 2) + ', 1', 'none, 1')})", lambda: f"{string(depth - 1)}.splitlines({pick('', 'true')})", lambda: f"{string(depth - 1)}.{pick('partition', 'rpartition')}({string(depth - 2)})",
        lambda: f"({x()} | {pick('list', 'sort', 'sort(reverse=true)', 'reverse | list', 'unique | list', 'sort(case_sensitive=true)', 'batch(2) | list', 'batch(2, 0) | list', 'slice(2) | list', 'slice(3, 0) | list')})",
        lambda: f"(rows | {pick('map(attribute=' + repr('v') + ') | list', 'map(attribute=' + repr('k') + ', default=9) | list', 'selectattr(' + repr('k') + ') | list', 'selectattr(' + repr('v') + ', ' + repr('gt') + ', 1) | list', 'rejectattr(' + repr('v') + ', ' + repr('none') + ') | list', 'groupby(' + repr('k') + ', default=' + repr('') + ')', 'sort(attribute=' + repr('v') + ')', 'rejectattr(' + repr('k') + ', ' + repr('defined') + ') | list')})",
        lambda: f"({x()} | {pick('select', 'reject')}({pick('', repr('odd'), repr('string'), repr('number'), repr('in') + ', [1, 2]', repr('defined'), repr('lt') + ', 3')}) | list)", lambda: f"({x()} | map({pick(repr('string'), repr('length'), repr('upper'), repr('tojson'), repr('default') + ', 1', repr('int'), repr('first'))}) | list)",
        lambda: f"({dct(depth - 1)} | {pick('dictsort', 'items | list', 'dictsort(by=' + repr('value') + ')', 'list', 'dictsort(reverse=true)')})", lambda: f"{dct(depth - 1)}.{pick('keys() | list', 'values() | list', 'items() | list')}", lambda: f"({string(depth - 1)} | list)", lambda: f"({x()} * {pick(0, 2)})",
    )()


def dct(depth):
    if depth <= 0:
        return pick(*DICTS)
    return pick(lambda: pick(*DICTS), lambda: f"{{{string(depth - 1)}: {value(depth - 1)}, {pick('1', 'b', 'n', '2.0', 'none')}: {value(depth - 1)}}}", lambda: f"dict({dct(depth - 1)}, zz={value(depth - 2)})")()


def boolean(depth):
    x = lambda: value(depth - 1)
    return pick(
        lambda: pick("b", "true", "false"), lambda: f"({x()} {pick('==', '!=')} {x()})", lambda: f"({number(depth - 1)} {pick('<', '<=', '>', '>=', '==', '!=')} {number(depth - 1)})", lambda: f"({string(depth - 1)} {pick('<', '>=', 'in', 'not in')} {string(depth - 1)})",
        lambda: f"({x()} {pick('in', 'not in')} {pick(lst, dct)(depth - 1)})", lambda: f"(not {x()})", lambda: f"({x()} {pick('and', 'or')} {x()})", lambda: f"({x()} is {pick('', 'not ')}{pick('defined', 'none', 'string', 'number', 'mapping', 'sequence', 'iterable', 'boolean', 'integer', 'float', 'true', 'false', 'lower', 'upper', 'callable', 'undefined', 'escaped')})",
        lambda: f"({integer(depth - 1)} is {pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'gt 1', 'le(4)', 'in [1, 2, 3]', 'sameas true')})", lambda: f"{string(depth - 1)}.{pick('startswith', 'endswith')}({pick(string(depth - 2), '(' + string(depth - 2) + ', ' + repr('a') + ')')})",
        lambda: f"{string(depth - 1)}.is{pick('digit', 'alpha', 'alnum', 'upper', 'lower', 'space', 'title', 'numeric', 'decimal', 'identifier', 'ascii', 'printable')}()", lambda: f"({number(depth - 1)} < {number(depth - 1)} <= {number(depth - 1)})", lambda: f"({x()} < {x()})",
    )()


def value(depth):
    if depth <= 0:
        return pick(*STRINGS, *INTS, *FLOATS, *LISTS[:6], *DICTS[:2], "none", "missing", "true")
    return pick(string, string, integer, number, lst, lst, dct, boolean, lambda k: f"{dct(k - 1)}[{string(k - 2)}]", lambda k: f"{dct(k - 1)}.get({string(k - 2)}{pick('', ', 0')})", lambda k: f"d.{pick('a', 'b', 'items', 'zz', 'C')}", lambda k: f"{lst(k - 1)}[{integer(k - 2)}]", lambda k: pick("missing", "d.nope", "no"))(depth)


def statement(depth):
    v = lambda: value(R.randint(0, 2))
    if depth <= 0:
        return pick(lambda: "{{ " + v() + " }}", lambda: pick("text", " a\n", "  ", "\n\n", "x "), lambda: "{#" + pick("", "-") + " c " + pick("", "-") + "#}")()
    body = lambda: "".join(statement(depth - 1) for _ in range(R.randint(1, 3)))
    o = lambda: pick("{%", "{%", "{%-", "{%+") + " "
    c = lambda: " " + pick("%}", "%}", "-%}", "+%}")
    tag = lambda text: o() + text + c()
    return pick(
        lambda: statement(0), lambda: pick("{{", "{{-") + " " + v() + " " + pick("}}", "-}}"), lambda: tag(f"if {v()}") + body() + pick("", tag(f"elif {v()}") + body()) + pick("", tag("else") + body()) + tag("endif"),
        lambda: tag(f"for x in {lst(1)}" + pick("", f" if {pick('x', 'x is string', 'loop is defined', 'x != 1')}")) + pick("{{ loop.index }}", "{{ loop.last }}{{ loop.revindex }}", "{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ x }}", "{% set y = x %}{{ y }}") + body() + pick("", tag(f"if loop.index > {pick(1, 2)}") + tag(pick("break", "continue")) + tag("endif") + "-") + pick("", tag("else") + body()) + tag("endfor"),
        lambda: tag(f"for {pick('a, b', '(a, b)')} in {pick('d.items()', 'd | dictsort', '[[1, 2], [3, 4]]', 'rows')}") + "{{ a }}={{ b }};" + body() + tag("endfor"), lambda: tag(f"set {pick('x', 'y', 's', 'n')} = {v()}") + body(), lambda: tag("set y" + pick("", " | upper", " | trim")) + body() + tag("endset") + "[{{ y }}]",
        lambda: "{% macro mac(p, q=" + v() + ") %}" + pick("{{ p }}/{{ q }}", "{{ p }}{{ varargs }}{{ kwargs }}", "{{ caller() if caller else 'none' }}{{ p }}", "{{ q }}{{ s }}{{ x }}") + body() + "{% endmacro %}" + pick("{{ mac(1) }}", "{{ mac(q='k', p=" + v() + ") }}", "{{ mac(1, 2, 3) }}", "{{ mac(1, z=2) }}", "{% call mac(5) %}C{{ n }}{% endcall %}", "{{ mac() }}"),
        lambda: tag(f"with x = {v()}, y = {v()}") + "{{ x }}{{ y }}" + body() + tag("endwith"), lambda: tag(f"filter {pick('upper', 'trim', 'replace(' + repr('a') + ', ' + repr('Z') + ')', 'length')}") + body() + tag("endfilter"),
        lambda: "{% set ns = namespace(a=1, b=" + v() + ") %}{% for x in l %}{% set ns.a = ns.a + x %}" + body() + "{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.zz }}", lambda: tag("raw") + "{{ x }}{% y %}" + pick("", "\n") + tag("endraw"), lambda: tag("generation") + body() + tag("endgeneration"),
        lambda: "{% for x in nest recursive %}({% if x is number %}{{ x }}{% else %}{{ loop(x) }}{{ loop.depth }}{% endif %}){% endfor %}", lambda: tag("block " + "b" + str(R.randint(0, 10**6))) + body() + tag("endblock"), lambda: "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner(';') %}{{ j() }}{{ j() }}",
    )()


def main():
    R.seed(int(sys.argv[1]))
    env, seen = environment(), set()
    while len(seen) < int(sys.argv[2]):
        template = "{{ " + value(R.randint(1, 3)) + " }}" if R.random() < 0.55 else "".join(statement(R.randint(1, 2)) for _ in range(R.randint(1, 3)))
        if template in seen or len(template) > 400:
            continue
        names = set(re.findall(r"[a-z]+", template))
        case = {"template": template, "input": json.dumps({k: v for k, v in INPUT.items() if k in names}, ensure_ascii=False)}
        try:
            case["ok"] = env.from_string(template).render(tools=None, documents=None, **json.loads(case["input"]))
        except Exception as error:
            case["error"] = f"{type(error).__name__}: {error}"
        text = case.get("ok", "")
        if re.search(r" at 0x|<(function|bound|built-in|generator|jinja2|Macro|Loop|list_|dict_|reversed|class|Cycler|Joiner)|\w+ object|\dj\)", text, re.IGNORECASE) or len(text) > 3000:
            continue
        if "error" in case and R.random() < 0.7:
            continue  # too many random expressions are type errors
        seen.add(template)
        print(json.dumps(case, ensure_ascii=False))


main()
