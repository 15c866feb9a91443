#!/usr/bin/env python3
"""npm's `openai`, `@anthropic-ai/sdk`, `ollama` and `ai`, unmodified, against `ruvllm serve` with
SmolLM2: client_npm.mjs. Skipped where node, the packages or the model cannot be had. Prints TAP."""
import os
import shutil
import subprocess

from serving import Server, finish, has_smollm2, skip, verdict

PACKAGES = ["openai@7.53.0", "@anthropic-ai/sdk@1.8.0", "ollama@0.6.4", "ai@7.0.169",
            "@ai-sdk/openai-compatible@3.0.90", "zod"]
FOLDER = os.path.join("build", "npm")


def fetch():
    """Installs the packages once; false: they cannot be had."""
    whole = os.path.join(FOLDER, "whole")
    if os.path.exists(whole):
        return True
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "package.json"), "w", encoding="utf-8") as f:
        f.write('{"private": true}')
    got = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES],
                         cwd=FOLDER, capture_output=True, check=False)
    if got.returncode:
        return False
    with open(whole, "w", encoding="utf-8"):
        return True


def run():
    script = os.path.join(FOLDER, "client_npm.mjs")  # where node finds the packages
    shutil.copy(os.path.join("tests", "server", "client_npm.mjs"), script)
    with Server(model="smollm2") as server:
        out = subprocess.run(["node", script, f"http://127.0.0.1:{server.port}"],
                             capture_output=True, check=False, timeout=600)
    lines = out.stdout.decode().splitlines()
    for line in lines:
        state, _, name = line.partition(" ")
        name, _, more = name.partition(" # ")
        verdict(name, state == "ok", more)
    verdict("the script ends well", out.returncode == 0 and lines, out.stderr.decode()[-1500:])


if not shutil.which("node") or not shutil.which("npm"):
    skip("npm's clients", "there is no node")
elif not has_smollm2():
    skip("npm's clients", "smollm2 is not on this machine")
elif not fetch():
    skip("npm's clients", "the packages cannot be had")
else:
    run()
finish()
