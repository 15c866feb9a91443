#!/usr/bin/env python3
"""Compares the WebAssembly build of tests/wasm/wasm_golden.c with the native one on the scalar
kernels, bit for bit, and with the expected values of tests/golden and tests/gguf. Prints TAP.

usage: tests/wasm/check.py NATIVE_PROGRAM PROGRAM.wasm
        (from the repository root; NODE names the node program)
"""
import array
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

# Limits of tests/model (test_golden.c, test_gguf_models.c, test_bert.c) for float32 activations and
# cache, and for the defaults.
EXACT, WITH_ADAPTER, ENCODER = 2e-4, 5e-4, 1e-4
NORMAL = {"q-": 0.5, "": 0.1}
LEARNED = 1e-4
# Node 18 needs the second flag; node 20 crashes in WASI calls of programs with much memory unless
# the third switches their
# fast path off.
NODE = [os.environ.get("NODE", "node"), "--no-warnings", "--experimental-wasi-unstable-preview1",
        "--no-turbo-fast-api-calls",
        "tests/wasm/run_wasi.js"]
TEXT = "Once upon a time, in 1984: caf\u00e9 & \u65e5\u672c"


def read_safetensors(path):
    """name -> list of numbers, of the f32 and i32 tensors"""
    with open(path, "rb") as f:
        raw = f.read()
    (header_len,) = struct.unpack_from("<Q", raw)
    out = {}
    for name, entry in json.loads(raw[8:8 + header_len]).items():
        kind = {"F32": "f", "I32": "i"}.get(entry.get("dtype"))
        if kind:
            begin, end = (8 + header_len + x for x in entry["data_offsets"])
            values = array.array(kind, raw[begin:end])
            if sys.byteorder == "big":
                values.byteswap()
            out[name] = values.tolist()
    return out


def run(command, *args):
    done = subprocess.run([*command, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: "
                           f"{done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def floats_of(output):
    """every float of the lines with logits or embeddings, in order"""
    words = [word for line in output.splitlines()
             if line.startswith(("logits ", "embedding ", "learned ")) for word in line.split()[1:]]
    return array.array("f",
                       struct.pack(f"={len(words)}I", *(int(word, 16) for word in words))).tolist()


def largest(got, want):
    if len(got) != len(want):
        raise RuntimeError(f"{len(got)} values, {len(want)} expected")
    worst = max(abs(a - b) for a, b in zip(got, want))
    if worst != worst or any(a != a for a in got):
        raise RuntimeError("a value is not a number")
    return worst


def ids(values):
    return ",".join(str(v) for v in values)


class Check:
    def __init__(self, native, wasm):
        self.native, self.wasm = [native], [*NODE, os.path.abspath(wasm)]
        self.n = self.n_failed = self.n_floats = 0
        self.worst_between = 0.0

    def both(self, options, path, actions):
        """The output of the two builds, the lines with the ISA apart. They must be equal."""
        tail = [*options, os.path.abspath(path), *actions]
        native, wasm = run(self.native, "--isa", "ref", *tail), run(self.wasm, *tail)
        mine, theirs = floats_of(wasm), floats_of(native)
        between = largest(mine, theirs) if theirs else 0.0
        self.worst_between = max(self.worst_between, between)
        self.n_floats += len(mine)
        if native.replace("isa ref\n", "", 1) != wasm.replace("isa ref\n", "", 1):
            raise RuntimeError(f"the builds differ (by up to {between:.2e})")
        return wasm

    def case(self, name, function, *args):
        self.n += 1
        try:
            note = function(*args)
        except (RuntimeError, OSError, KeyError) as problem:
            self.n_failed += 1
            print(f"not ok {self.n} - {name}\n# {problem}")
        else:
            print(f"ok {self.n} - {name}: {note}")
        sys.stdout.flush()

    def golden(self, linked):
        """linked: some hold links to the weights of others, which node 18 does not follow, so a
        copy is run."""
        with tempfile.TemporaryDirectory() as at:
            return self.golden_copy(shutil.copytree(linked, os.path.join(at, "model")))

    def golden_copy(self, folder):
        expected = read_safetensors(os.path.join(folder, "expected.safetensors"))
        if "logits" not in expected:
            return self.encoder(folder, expected, [[]])
        tokens = expected["tokens"]
        actions = ["logits", ids(tokens)]
        want = expected["logits"]
        if "long_last_logits" in expected:
            actions += ["last", ids(expected["long_tokens"])]
            want = want + expected["long_last_logits"]
        actions += ["greedy", "32", ids(tokens[:16])]
        output = self.both(["--exact"], folder, actions)
        worst = largest(floats_of(output), want)
        if worst >= EXACT:
            raise RuntimeError(
                f"logits are {worst:.2e} from the expected ones; {EXACT} are allowed")
        if f"greedy {ids(expected['greedy'])}\n" not in output:
            raise RuntimeError("the greedy continuation is another one")
        lora = os.path.join(folder, "lora")
        adapted = self.both(["--exact", "--lora", os.path.abspath(lora)], folder,
                            ["logits", ids(tokens)])
        difference = largest(floats_of(adapted),
                             read_safetensors(os.path.join(lora, "expected.safetensors"))["logits"])
        if difference >= WITH_ADAPTER:
            raise RuntimeError(f"with the adapter: {difference:.2e} from the expected logits; "
                               f"{WITH_ADAPTER} are allowed")
        self.both([], folder, ["logits", ids(tokens)])
        return f"bits equal; {worst:.1e} from float64, {difference:.1e} with the adapter"

    def gguf(self, path):
        name = os.path.basename(path)
        expected = read_safetensors(path[:-len(".gguf")] + ".expected.safetensors")
        if "logits" not in expected:
            return self.encoder(path, expected, [[], ["--memory"]])
        actions, want = ["logits", ids(expected["tokens"])], expected["logits"]
        if "long_tokens" in expected:
            actions += ["last", ids(expected["long_tokens"])]
            want = want + expected["long_last_logits"]
        worst = []
        for options, limit in ((["--exact"], EXACT),
                               ([], NORMAL["q-" if name.startswith("q-") else ""])):
            output = self.both(options, path, actions)
            worst.append(largest(floats_of(output), want))
            if worst[-1] >= limit:
                raise RuntimeError(f"{' '.join(options)}: logits are {worst[-1]:.2e} from the "
                                   f"expected ones; {limit} are allowed")
            if self.both(["--memory", *options], path, actions) != output:
                raise RuntimeError("opened from memory the results are others")
        self.both([], path, ["text", TEXT, "greedy", "16", ids(expected["tokens"][:8])])
        return f"bits equal, file and memory; {worst[0]:.1e} exact, {worst[1]:.1e} by default"

    def encoder(self, path, expected, ways):
        actions = ["embed", ids(expected["tokens"])]
        for way in ways:
            output = self.both([*way, "--exact"], path, actions)
            worst = largest(floats_of(output), expected["mean"] + expected["cls"]
                            + expected["last"])
            if worst >= ENCODER:
                raise RuntimeError(f"embeddings are {worst:.2e} from the expected ones; {ENCODER} "
                                   f"are allowed")
            self.both(way, path, actions)
        return f"bits equal; embeddings {worst:.1e} from float64"

    def learning(self, path):
        """Training draws and steps by functions of the C library, whose last bits are its own: the
        builds are alike, not equal."""
        tail = [os.path.abspath(path), "logits", "5,9,17,33,6,40", "learn",
                "What is Kakovin's dog?", "Rex", "5,9,17,33,6,40"]
        native, wasm = run(self.native, "--isa", "ref", *tail), run(self.wasm, *tail)
        words = [[line for line in output.splitlines() if line.startswith(("said ", "adapters "))]
                 for output in (native, wasm)]
        if words[0] != words[1] or len(words[0]) != 4:
            raise RuntimeError(f"{words[1]}; the native build says {words[0]}")
        floats = [floats_of(output) for output in (native, wasm)]
        between = largest(*floats)
        # six rows as they were, then after scores, after training
        n = len(floats[0]) // 8
        rows = [floats[1][i * n:(i + 1) * n] for i in range(5, 8)]
        moved = [largest(a, b) for a, b in zip(rows, rows[1:])]
        if between > LEARNED or min(moved) < 10 * LEARNED:
            raise RuntimeError(f"{between:.2e} between the builds; learning moved the logits by "
                               f"{moved}")
        return (f"{between:.1e} between the builds where learning moves logits by "
                f"{min(moved):.1e} to {max(moved):.1e}")

    def errors(self):
        """A file that is not there, and one that is no model, are reported, not trapped."""
        for path, word in (("/no/such/model.gguf", "RV_E_NOT_FOUND"),
                           (os.path.abspath("Makefile"), "RV_E_MODEL")):
            done = subprocess.run([*self.wasm, path], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
            if done.returncode != 1 or word not in done.stderr.decode():
                raise RuntimeError(f"{path}: status {done.returncode}, "
                                   f"{done.stderr.decode().strip()}")
        return "status and message"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[-1])
    folders = sorted(os.path.dirname(p) for p in glob.glob("tests/golden/*/expected.safetensors"))
    files = sorted(glob.glob("tests/gguf/*.gguf"))
    if not folders or not files:
        sys.exit("tests/golden and tests/gguf: no models here")
    print(f"1..{len(folders) + len(files) + 2}")
    check = Check(os.path.abspath(sys.argv[1]), sys.argv[2])
    for folder in folders:
        check.case(folder, check.golden, folder)
    for path in files:
        check.case(path, check.gguf, path)
    check.case("learning", check.learning, "tests/gguf/llama.gguf")
    check.case("what cannot be opened", check.errors)
    print(f"# {check.n_floats} values of the two builds differ by at most "
          f"{check.worst_between:.2e}; "
          f"{sys.argv[2]}: {os.path.getsize(sys.argv[2])} bytes")
    return 1 if check.n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
