"""tools/run_tests: what it makes of programs that pass, fail, skip, crash, hang, loop or say less
than they announced. Prints TAP."""
import os
import subprocess
import tempfile

PROGRAMS = {
    "pass": ("echo 1..2; echo ok 1 - a; printf 'no newline '; echo ok 2 - b", "2 0 0"),
    "skip": ("echo '1..2'; echo ok 1 - a; echo 'not ok 2 # SKIP b'", "1 0 1"),
    "skip_all": ("echo '1..0 # SKIP nothing here'", "0 0 1"),
    "fail": ("echo 1..2; echo ok 1 - a; echo not ok 2 - b", "1 1 0"),
    "crash": ("echo 1..2; echo ok 1 - a; kill -9 $$", "1 1 0"),
    "less": ("echo 1..3; echo ok 1 - a", "1 1 0"),
    "silent": ("true", "0 1 0"),
    "status": ("echo 1..1; echo ok 1 - a; exit 3", "1 1 0"),
    "hang": ("echo 1..1; sleep 1000; echo ok 1 - a", "0 1 0"),
    "loop": ("echo 1..1; while :; do :; done", "0 1 0"),
}


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, (text, _) in PROGRAMS.items():
            paths[name] = os.path.join(folder, name + ".sh")
            with open(paths[name], "w", encoding="utf-8") as f:
                f.write(text + "\n")
        file = os.path.join(folder, "results")
        env = dict(os.environ, RESULTS=file, TEST_CPU_SECONDS="1", TEST_IDLE_SECONDS="10")
        run = subprocess.run(["tools/run_tests", "-j", "4", *paths.values()], env=env,
                             capture_output=True, text=True, check=False)
        results.append(("a failed case is exit status 1", run.returncode == 1))
        with open(file, encoding="utf-8") as f:
            rows = {line.split()[1]: " ".join(line.split()[4:]) for line in f}
        results += [(name, rows.get(paths[name]) == want) for name, (_, want) in PROGRAMS.items()]
        results.append(("why: no CPU time", "it had used no CPU time for 10 s" in run.stdout))
        results.append(("why: CPU time", "ended after 1 s of CPU time" in run.stdout))
        total = subprocess.run(["tools/run_tests", "--total", file], capture_output=True, text=True,
                               check=False)
        results.append(("the sum is the last line",
                        total.stdout.splitlines()[-1] == "7 passed, 7 failed, 2 skipped"))
        named = [line.split()[1] for line in total.stdout.splitlines()
                 if line.startswith("failed: ")]
        failing = {name for name, (_, want) in PROGRAMS.items() if want.split()[1] != "0"}
        results.append(("what failed is named again",
                        sorted(named) == sorted(paths[name] for name in failing)))
        results.append(("and so is its case", "not ok 2 - b" in total.stdout))
        results.append(("ten are named", total.stdout.count(" s CPU ") == 10))
        fine = subprocess.run(["tools/run_tests", paths["pass"]], capture_output=True, check=False)
        results.append(("nothing failed is exit status 0", fine.returncode == 0))
    usage = subprocess.run(["tools/run_tests"], capture_output=True, check=False)
    results.append(("wrong use is exit status 2", usage.returncode == 2))
    print(f"1..{len(results)}")
    for i, (name, ok) in enumerate(results, 1):
        print(f"{'ok' if ok else 'not ok'} {i} - {name}")


if __name__ == "__main__":
    main()
