#!/usr/bin/env python3
"""bench/serve with small counts: starts, corrections, connections that rest, clients that are slow,
broken requests, kill -9 under load, a mixed load; and a comparison of ours alone, with its table
and picture. Prints TAP."""
import csv
import os
import subprocess
import sys
import tempfile

from serving import MODEL, PROGRAM, SLOW, finish, verdict

KINDS = {"start": ["--n", "2"], "teach": ["--n", "3"],
         "idle": ["--n", "300", "--seconds", "1"], "slow": ["--n", "60", "--seconds", "2"],
         "fuzz": ["--n", "3000"], "kill": ["--n", "4"]}


def run(*arguments):
    r = subprocess.run([sys.executable, *arguments, "--program", PROGRAM], capture_output=True,
                       timeout=SLOW, check=False)
    return r.returncode, (r.stdout + r.stderr).decode()


for kind, options in KINDS.items():
    status, said = run("bench/serve/endure", kind, MODEL, *options)
    verdict(f"{kind} is endured", status == 0 and "held" in said, said)
with tempfile.TemporaryDirectory() as folder:
    table, picture = os.path.join(folder, "s.csv"), os.path.join(folder, "s.svg")
    status, said = run("bench/serve/endure", "soak", MODEL, "--n", "4", "--seconds", "10", "--rate",
                       "6", "--teach", "3", "--settle", "1", "--csv", table, "--svg", picture)
    verdict("soak is endured", status == 0 and "held" in said, said)
    with open(table, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    # One row a moment where nothing waits; a busy machine has fewer.
    verdict("its memory is kept", len(rows) > 3 and int(rows[-1]["requests"]) > 10 and
            all(int(r["resident"]) >= int(r["own"]) > 1 << 20 for r in rows), rows)
    with open(picture, encoding="utf-8") as f:
        verdict("and drawn", f.read().count("<polyline") == 2)
with tempfile.TemporaryDirectory() as folder:
    table, picture = os.path.join(folder, "r.csv"), os.path.join(folder, "r.svg")
    status, said = run("bench/serve/versus", MODEL, "--clients", "1,3", "--rounds", "1",
                       "--requests", "4", "--prompt", "20", "--output", "8", "--csv", table,
                       "--svg", picture)
    verdict("clients are measured", status == 0, said)
    with open(table, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    verdict("their figures are kept", [(r["clients"], r["requests"], r["generated"], r["failed"])
                                       for r in rows] == [("1", "4", "32", "0"),
                                                          ("3", "4", "32", "0")], rows)
    with open(picture, encoding="utf-8") as f:
        verdict("and drawn", f.read().count("<rect class") == 1 and "ruvllm" in said, said)
finish()
