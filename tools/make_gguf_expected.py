#!/usr/bin/env python3
"""Write the expected values of the tiny GGUF models: NAME.expected.safetensors beside each
NAME.gguf.

    make_gguf_expected.py DIR [NAME ...]

Two programs compute every value: llama.cpp (through llama-cpp-python; float32 cache, no flash
attention, one thread) and tools/reference_forward.py (float64). For a float32 model the file holds
llama.cpp's logits, which must agree with float64; otherwise, and wherever llama.cpp departs from
the model's own rules, it holds the float64 ones:
  - weights other than float32: llama.cpp also quantizes the activations
  - gemma2: llama.cpp takes GELU from a half precision table (the comparison does the same)
  - windows of mistral and phi3 files: llama.cpp ignores them, which shows in inputs longer than the
  window
Tensors: tokens [T] int32, logits [T, V] f32; for float32 models also long_tokens [T2] and
long_last_logits [V]. The metadata of the file names the source of each and the largest difference
between the two programs. Needs numpy, gguf, llama-cpp-python.
"""
import argparse
import glob
import os
import zlib

import numpy as np

import reference_forward as ref

SHORT = 40            # shorter than every window but gemma2's
SHORT_QUANT = 20
LONG = 200
LONG_ROPE = 300       # beyond the original context of the longrope models
AGREE = 5e-5          # float32 llama.cpp against float64, absolute, on logits of deviation near 1
AGREE_GELU = 5e-3     # float32 rounding moves a few GELU arguments to the next entry of the table
# activations quantized to 8 bits: up to 0.36 seen; other weights than these are about 10 away
AGREE_QUANT = 0.6


def llama_cpp(path, ids, n_ctx):
    """Logits of every position, [T, V]."""
    import llama_cpp
    defaults = llama_cpp.llama_cpp.llama_model_default_params

    def plain_params():          # the ordinary CPU path, without repacked weights
        params = defaults()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_cpp.llama_model_default_params = plain_params
    model = llama_cpp.Llama(path, n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=n_ctx, n_threads=1,
                            n_threads_batch=1,
                            logits_all=True, flash_attn=False, type_k=0, type_v=0, use_mmap=False,
                            verbose=False)
    llama_cpp.llama_cpp.llama_model_default_params = defaults
    model.eval([int(i) for i in ids])
    out = np.array(model.scores[:len(ids)], np.float32)
    model.close()
    return out


def same_blocks(path):
    """Whether the float64 program and llama.cpp decode every block of a file to the same bits."""
    import ctypes
    import gguf
    import llama_cpp
    library = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(llama_cpp.__file__), "lib",
                                                 "*ggml-base*"))[0])
    for t in gguf.GGUFReader(path).tensors:
        name = t.tensor_type.name
        if name in ("F32", "F16", "BF16"):
            continue
        ours = gguf.quants.dequantize(t.data, t.tensor_type).ravel()
        theirs, raw = np.empty(ours.size, np.float32), np.ascontiguousarray(t.data)
        decode = getattr(library, "dequantize_row_" + name.lower().replace("_k", "_K"))
        decode.argtypes, decode.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
        decode(raw.ctypes.data, theirs.ctypes.data, ours.size)
        if not np.array_equal(ours, theirs):
            return False
    return True


def gap(a, b):
    return float(np.abs(a.astype(np.float64) - b).max())


def expected(path):
    name = os.path.basename(path)[:-len(".gguf")]
    official, theirs = ref.load(path), ref.load(path, "llama.cpp")
    vocab, plain = len(official.embed), not name.startswith("q-")
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(b"tokens of " + name.encode())))
    tokens = rng.integers(3, vocab - 4, SHORT if plain else SHORT_QUANT).astype("<i4")
    exact = ref.forward(official, tokens)[1]
    other = llama_cpp(path, tokens, 256)
    trusted = plain and official.act != "gelu"
    difference = gap(other, ref.forward(theirs, tokens)[1])
    limit = AGREE if trusted else AGREE_QUANT if not plain else AGREE_GELU
    note = {"logits": "llama.cpp" if trusted else "float64", "llama.cpp.difference": "%.2e"
            % difference}
    out = {"tokens": tokens, "logits": np.asarray(other if trusted else exact, "<f4")}
    line = "%-14s std %.2f  short %.1e" % (name, exact.std(), difference)
    if difference > limit:
        raise SystemExit("%s: llama.cpp and float64 differ by %g (limit %g)"
                         % (name, difference, limit))
    if not plain and not same_blocks(path):
        raise SystemExit("%s: llama.cpp decodes blocks to other values" % name)
    if plain:
        longrope = official.long_freqs is not None
        long_tokens = rng.integers(3, vocab - 4, LONG_ROPE if longrope else LONG).astype("<i4")
        exact = ref.forward(official, long_tokens)[1][-1]
        their_rules = ref.forward(theirs, long_tokens)[1][-1]
        other = llama_cpp(path, long_tokens, 512 if longrope else 256)[-1]
        difference = gap(other, their_rules)
        deviates = gap(exact, their_rules) if trusted else 0
        if difference > limit:
            raise SystemExit("%s, long input: llama.cpp and float64 differ by %g"
                             % (name, difference))
        use_theirs = trusted and not deviates
        out["long_tokens"], out["long_last_logits"] = long_tokens, np.asarray(other if use_theirs
            else exact, "<f4")
        note["long_last_logits"] = "llama.cpp" if use_theirs else "float64"
        note["llama.cpp.long_difference"] = "%.2e" % difference
        line += "  long %.1e" % difference
        if deviates:
            note["llama.cpp.long_deviation"] = "%.2e" % deviates
            line += "  (llama.cpp's own rules: %.2f away)" % deviates
    ref.save_safetensors(path[:-len(".gguf")] + ".expected.safetensors", out, note)
    print(line + "  -> " + note["logits"], flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    o = ap.parse_args()
    paths = [os.path.join(o.dir, n + ".gguf")
             for n in o.names] or sorted(glob.glob(os.path.join(o.dir, "*.gguf")))
    for path in paths:
        expected(path)


if __name__ == "__main__":
    main()
