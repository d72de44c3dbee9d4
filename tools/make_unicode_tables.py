#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp from the Unicode 16.0 character database.

Unicode 16.0 is what the pre-tokenizer patterns of Hugging Face's tokenizers 0.23 are matched with (checked for every code
point); Python's own unicodedata and PCRE2 are older. Needs: pip install unicodedata2==16.0.0
Use: tools/make_unicode_tables.py > src/text/unicode_tables.cpp && clang-format -i src/text/unicode_tables.cpp
"""
import unicodedata2 as ucd

VERSION = "16.0.0"
BLOCK = 128
CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()


def rows(values, per_line=24):
    values = [str(v) for v in values]
    return ",\n".join(",".join(values[i:i + per_line]) for i in range(0, len(values), per_line))


def main():
    assert ucd.unidata_version == VERSION, ucd.unidata_version
    codes = [CATEGORIES.index(ucd.category(chr(c))) for c in range(0x110000)]
    blocks, index = {}, []
    for start in range(0, 0x110000, BLOCK):
        index.append(blocks.setdefault(tuple(codes[start:start + BLOCK]), len(blocks)))
    assert len(blocks) < 65536

    classes, decompositions = [], []
    for c in range(0x110000):
        combining = ucd.combining(chr(c))
        if combining:
            if classes and classes[-1][1] == c - 1 and classes[-1][2] == combining:
                classes[-1][1] = c
            else:
                classes.append([c, c, combining])
        parts = ucd.decomposition(chr(c)).split()
        if parts and not parts[0].startswith("<"):
            first, second = int(parts[0], 16), int(parts[1], 16) if len(parts) > 1 else 0
            # A pair that is excluded from composition does not come back under NFC.
            composes = second != 0 and ucd.normalize("NFC", chr(c)) == chr(c)
            decompositions.append((c, first, second, int(composes)))

    print("// Longer than 600 lines: a generated table.")
    print(f"// Made by tools/make_unicode_tables.py from Unicode {VERSION}; do not edit.")
    print('#include "text/unicode_tables.hpp"\n\nnamespace adze::text::tables {\n')
    print(f"const std::uint8_t kCategoryBlocks[{len(blocks) * BLOCK}] = {{{rows([c for b in blocks for c in b], 32)}}};\n")
    print(f"const std::uint16_t kCategoryIndex[{len(index)}] = {{{rows(index)}}};\n")
    print(f"const CombiningRange kCombining[{len(classes)}] = {{{rows(['{0x%x,0x%x,%d}' % tuple(r) for r in classes], 6)}}};")
    print(f"const std::size_t kCombiningCount = {len(classes)};\n")
    print(f"const Decomposition kDecompositions[{len(decompositions)}] = "
          f"{{{rows(['{0x%x,0x%x,0x%x,%s}' % (a, b, c, 'true' if d else 'false') for a, b, c, d in decompositions], 4)}}};")
    print(f"const std::size_t kDecompositionCount = {len(decompositions)};\n")
    print("}  // namespace adze::text::tables")


main()
