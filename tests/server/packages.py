"""Packages from PyPI, each in an environment of its own in the build folder."""
import fcntl
import os
import subprocess
import sys
import venv


def fetch(packages, folder):
    """Makes the environment once; false: it cannot be had."""
    whole = os.path.join(folder, "whole")
    if os.path.exists(whole):
        return True
    try:
        venv.create(folder, with_pip=True, clear=True)
        python = os.path.join(folder, "bin", "python3")
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    with open(whole, "w", encoding="utf-8"):
        return True


def run_with(*packages):
    """Returns where the packages can be imported: the script is run again with their Python. Where
    they cannot be had, the script ends as skipped."""
    folder = os.path.join("build", "venv", "+".join(packages))
    if os.path.abspath(sys.prefix) == os.path.abspath(folder):
        return
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another script may want the same one now
        there = fetch(packages, folder)
    if not there:
        print(f"ok 1 - {' '.join(packages)} # SKIP cannot be had\n1..1")
        sys.exit(0)
    python = os.path.join(folder, "bin", "python3")
    os.execv(python, [python, os.path.abspath(sys.argv[0])])
