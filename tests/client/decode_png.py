"""Reads a PNG file with a palette and prints, as JSON, its size, its axes, and where each colour is: decode_png.py FILE

Shares nothing with the encoder: chunks, sums, zlib and rows are checked here. The axes are the longest unbroken lines of the
darkest colour, from left to right and, of those on both sides the left one, from top to bottom.
"""
import collections
import json
import struct
import sys
import zlib


def chunks(data):
    """(name, body) of each chunk; its CRC must hold."""
    if data[:8] != bytes([137, 80, 78, 71, 13, 10, 26, 10]):
        raise ValueError("no PNG file")
    at = 8
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        crc, = struct.unpack(">I", data[at + 8 + size:at + 12 + size])
        if len(body) != size or crc != zlib.crc32(name + body):
            raise ValueError(f"chunk {name} is damaged")
        yield name.decode(), body
        at += 12 + size


def longest(flags):
    """(length, first, last) of the longest run of true values."""
    best, begin = (0, 0, 0), None
    for i, flag in enumerate([*flags, False]):
        if flag and begin is None:
            begin = i
        if not flag and begin is not None:
            best = max(best, (i - begin, begin, i - 1))
            begin = None
    return best


def main(path):
    with open(path, "rb") as file:
        found = list(chunks(file.read()))
    parts = dict(found)
    if [name for name, _ in found] != ["IHDR", "PLTE", "IDAT", "IEND"] or parts["IEND"]:
        raise ValueError("other chunks than expected")
    width, height, *form = struct.unpack(">IIBBBBB", parts["IHDR"])
    if form != [8, 3, 0, 0, 0]:
        raise ValueError(f"form {form}")
    raw = zlib.decompress(parts["IDAT"])
    if len(raw) != height * (width + 1) or any(raw[y * (width + 1)] for y in range(height)):
        raise ValueError("rows of another length, or filtered")
    rows = [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]
    colors = [parts["PLTE"][i:i + 3].hex() for i in range(0, len(parts["PLTE"]), 3)]
    dark = min(range(len(colors)), key=lambda i: sum(bytes.fromhex(colors[i])))
    across = max((*longest(p == dark for p in row)[:], y) for y, row in enumerate(rows))
    columns = [(*longest(row[x] == dark for row in rows), x) for x in range(width)]
    down = next(column for column in columns if column[0] >= 0.9 * max(columns)[0])  # the one on the left
    places = collections.defaultdict(lambda: collections.defaultdict(list))
    for y, row in enumerate(rows):
        for x, pixel in enumerate(row):
            if pixel not in (0, dark):
                places[colors[pixel]][x].append(y)
    ink = {"left": sum(p == dark for row in rows for p in row[:down[3]]),
           "right": sum(p == dark for row in rows for p in row[across[2] + 1:]),
           "below": sum(p == dark for row in rows[across[3] + 1:] for p in row),
           "above": sum(p == dark for row in rows[:down[1]] for p in row)}
    json.dump({"width": width, "height": height, "colors": places, "ink": ink,
               "x_axis": {"from": across[1], "to": across[2], "y": across[3]},
               "y_axis": {"from": down[1], "to": down[2], "x": down[3]}}, sys.stdout)


main(sys.argv[1])
