#!/usr/bin/env python3
"""Copies a GGUF file with other string metadata: gguf_edit.py FROM TO KEY=VALUE... (VALUE with Python's escapes)."""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


def text_at(data, at):
    n = struct.unpack_from("<Q", data, at)[0]
    return data[at + 8:at + 8 + n], at + 8 + n


def after_value(data, at, kind):
    if kind == STRING:
        return text_at(data, at)[1]
    if kind != ARRAY:
        return at + SIZES[kind]
    kind, n = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind in SIZES:
        return at + n * SIZES[kind]
    for _ in range(n):
        at = after_value(data, at, kind)
    return at


def pack(text):
    return struct.pack("<Q", len(text)) + text


def renamed(data, at, specials):
    """The array at this place with some tokens' texts, {index: text}, or with their types."""
    kind, n = struct.unpack_from("<IQ", data, at)
    out, at = [data[at:at + 12]], at + 12
    for i in range(n):
        end = after_value(data, at, kind)
        new = struct.pack("<i", 3) if kind != STRING else pack(specials.get(i, b""))
        out.append(new if i in specials else data[at:end])
        at = end
    return b"".join(out)


def edit(source, target, changes, specials=None):
    """specials: {index: bytes}, tokens that get another text and become special."""
    with open(source, "rb") as f:
        data = f.read()
    n_tensors, n_values = struct.unpack_from("<QQ", data, 8)
    at, values, alignment = 24, [], 32
    for _ in range(n_values):
        start = at
        key, at = text_at(data, at)
        kind = struct.unpack_from("<I", data, at)[0]
        at = after_value(data, at + 4, kind)
        if key == b"general.alignment":
            alignment = struct.unpack_from("<I", data, at - 4)[0]
        if specials and key in (b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type"):
            begin = start + 8 + len(key) + 4
            values.append(data[start:begin] + renamed(data, begin, specials))
        elif key.decode() not in changes:
            values.append(data[start:at])
    values += [pack(k.encode()) + struct.pack("<I", STRING) + pack(v) for k, v in changes.items()]
    tensors = at
    for _ in range(n_tensors):
        at = text_at(data, at)[1]
        n_dims = struct.unpack_from("<I", data, at)[0]
        at += 4 + 8 * n_dims + 4 + 8
    head = data[:8] + struct.pack("<QQ", n_tensors, len(values)) + \
                                  b"".join(values) + data[tensors:at]
    body = data[(at + alignment - 1) // alignment * alignment:]
    with open(target, "wb") as f:
        f.write(head + b"\0" * (-len(head) % alignment) + body)


def main():
    pairs = [a.split("=", 1) for a in sys.argv[3:]]
    edit(
    sys.argv[1], sys.argv[2], {
        k: v.encode(
            "latin-1", "backslashreplace").decode("unicode_escape").encode() for k, v in pairs})


if __name__ == "__main__":
    main()
