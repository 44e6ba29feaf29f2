"""Writes the tables of hetrain_tokenizer.h's section >>unicode between its two marker lines.   python3 tests/oracle/unicode_tables.py

Needs unicodedata2 16.0.0 (general categories, combining classes and decompositions of Unicode 16.0, the version of the regular expressions in
Hugging Face's tokenizers 0.20 and later) and tokenizers, whose NFC is an older Unicode's: marks and compositions that it does not know are left
out, so that both normalise alike. Unicode's stability policy makes all versions agree on the characters they know.
"""
import os
import sys
import unicodedata2 as ucd
from tokenizers import normalizers

LETTER, NUMBER, OTHER_NUMBER, WORD, SPACE = 1, 2, 3, 4, 5
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Alphabetic beyond the general categories L, M and Nl: circled and squared letters
ALPHABETIC_SYMBOLS = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
SPACES = {0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000} | set(range(0x2000, 0x200B))


def character_class(c):
    category = ucd.category(chr(c))
    if c in SPACES:
        return SPACE
    if category[0] == "L":
        return LETTER
    if category in ("Nd", "Nl"):
        return NUMBER
    if category == "No":
        return OTHER_NUMBER
    if category[0] == "M" or category == "Pc" or c in (0x200C, 0x200D) or any(a <= c <= b for a, b in ALPHABETIC_SYMBOLS):
        return WORD
    return 0


def transitions(value_of, bits):
    """(start << bits | value) wherever the value changes."""
    result, last, expected = [], 0, 0
    for c in range(0x110000):
        value = 0 if 0xD800 <= c < 0xE000 else value_of(c)
        if value != last:
            result.append(c << bits | value)
            last = value
    return result


def lines(values):
    result, line = [], "   "
    for value in values:
        text = "%d," % value
        if len(line) + len(text) > 120:
            result.append(line)
            line = "   "
        line += " " + text if line.strip() == "" else text
    return result + [line]


def tables():
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    compose, decompose = nfc.normalize_str, nfd.normalize_str

    def combining(c):
        k = ucd.combining(chr(c))
        if k > 1 and compose("x" + chr(c) + "\u0334") == "x" + chr(c) + "\u0334":
            return 0
        if k == 1 and compose("x\u0345" + chr(c)) == "x\u0345" + chr(c):
            return 0
        return k

    hangul = range(0xAC00, 0xAC00 + 11172)
    runs, flat, first, composites, skipped, last = [], [], {}, [], 0, None
    for c in CODE_POINTS:
        text = ucd.decomposition(chr(c))
        if not text or text[0] == "<" or c in hangul:
            continue
        if decompose(chr(c)) == chr(c):
            skipped += 1
            continue
        parts = [int(part, 16) for part in text.split()]
        if last != (c - 1, len(parts)):
            runs += [c << 1 | len(parts) - 1, len(flat)]
        if len(parts) == 2 and ucd.normalize("NFC", chr(c)) == chr(c):
            composites.append((parts[0], parts[1], len(flat)))
        last, first[c] = (c, len(parts)), parts[0]
        flat += parts
    runs += [0x110000 << 1, len(flat)]
    composites.sort()
    marks = {c: combining(c) for c in CODE_POINTS if ucd.combining(chr(c))}
    seconds = {b for a, b, place in composites} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    def normal(c):
        start = c
        while start in first:
            start = first[start]
        joins = marks.get(c, 0) != 0 or marks.get(start, 0) != 0 or start in seconds
        changes = compose(chr(c)) != chr(c)
        return marks.get(c, 0) | (256 if changes else 0) | (512 if joins else 0)

    classes = transitions(character_class, 3)
    normals = transitions(normal, 10)
    left_out = sum(1 for c in marks if marks[c] == 0)
    yield "/* Unicode %s. (first code point << 3 | heti_k_class) of every run of one class. */" % ucd.unidata_version
    yield "static const uint32_t heti_k_classes[%d] = {" % len(classes)
    yield from lines(classes)
    yield "};"
    yield "/* (first code point << 10 | HETI_K_JOINS | HETI_K_CHANGES | canonical combining class) of every"
    yield "   run; %d marks newer than Unicode 9 are left out. */" % left_out
    yield "static const uint32_t heti_k_normals[%d] = {" % len(normals)
    yield from lines(normals)
    yield "};"
    yield "/* Canonical decompositions without Hangul's, ascending: one or two code points. %d newer than" % skipped
    yield "   Unicode 9 are left out. */"
    yield "static const uint32_t heti_k_decompositions[%d] = {" % len(flat)
    yield from lines(flat)
    yield "};"
    yield "/* Of every run of consecutive code points that decompose into one, or into two: (the first << 1 |"
    yield "   two), and where its parts begin. At the end where the last one's end. */"
    yield "static const uint32_t heti_k_decomposed[%d] = {" % len(runs)
    yield from lines(runs)
    yield "};"
    yield "/* Places in heti_k_decompositions of the pairs that compose again, ascending by (first, second). */"
    yield "static const uint16_t heti_k_compositions[%d] = {" % len(composites)
    yield from lines([place for a, b, place in composites])
    yield "};"


def main():
    header = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "util", "hetrain_tokenizer.h")
    begin, end = "/* ---- tables made by tests/oracle/unicode_tables.py ---- */\n", "/* ---- end of the tables ---- */\n"
    with open(header) as file:
        text = file.read()
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit("unicode_tables.py: hetrain_tokenizer.h lacks the two marker lines")
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    with open(header, "w") as file:
        file.write(head + begin + "\n".join(tables()) + "\n" + end + tail)


if __name__ == "__main__":
    main()
