"""What the tests of programs on a terminal share: TAP lines, and a program on a pseudo-terminal of
its own.

RUVLLM names the program (./ruvllm).
"""
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time

PROGRAM = os.environ.get("RUVLLM", "./ruvllm")
MODEL = "tests/gguf/llama-spm.gguf"
PASTE_ON, PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
PROMPT = re.compile(rb"> |>\x1b\[0m ")
MORE = re.compile(rb"\. |\.\x1b\[0m ")
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>][0-9A-B]?")
SLOW = 600  # seconds until what should come counts as missing: a busy machine takes its time
cases = 0


def verdict(name, good, shown=""):
    global cases
    cases += 1
    print(f"{'ok' if good else 'not ok'} {cases} - {name}")
    if not good and shown != "":
        for line in repr(shown)[-1200:].split("\\n"):
            print("#  ", line)
    sys.stdout.flush()
    return good


def skip(name, why):
    global cases
    cases += 1
    print(f"ok {cases} - {name} # SKIP {why}")


class Missing(Exception):
    """The program did not write what was waited for."""


def on_terminal(command, *arguments):
    """What the command writes to a terminal, and to a pipe."""
    t = Terminal(*arguments[1:], command=command, model=arguments[0])
    t.end()
    t.close()
    piped = subprocess.run(
        [PROGRAM, command, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "RUVLLM_STATE_DIR": Terminal.home},
    )
    return t.seen, piped.stdout + piped.stderr


def has_terminals():
    """Can this machine give a program a terminal? A bare chroot without /dev/pts cannot."""
    try:
        for side in os.openpty():
            os.close(side)
    except OSError:
        return False
    return True


class Terminal:
    """A program on a terminal of its own."""

    home = ""  # where the program keeps its files

    def __init__(self, *arguments, env=None, model=MODEL, command="chat", columns=0):
        self.seen = b""
        self.at = 0  # what is before it has been looked at
        self.status = None
        self.fd, slave = os.openpty()
        if columns:
            termios.tcsetwinsize(slave, (24, columns))
        self.modes = termios.tcgetattr(slave)  # before the program can change them
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            os.login_tty(slave)
            os.environ.update({"TERM": "xterm",
    "HOME": self.home,
    "RUVLLM_CACHE_DIR": self.home,
    "RUVLLM_STATE_DIR": self.home,
     **(env or {})})
            for name in [n for n, v in os.environ.items() if v == ""]:
                del os.environ[name]
            os.execv(PROGRAM, [PROGRAM, command, model, *arguments])
        os.close(slave)

    def read_some(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return None
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            data = b""
        self.seen += data
        return data

    def wait(self, what, seconds=SLOW):
        """Reads up to and with `what` (bytes, or a compiled pattern) and returns what came since the last time."""
        end = time.monotonic() + seconds
        pattern = what if isinstance(what, re.Pattern) else re.compile(re.escape(what))
        while True:
            found = pattern.search(self.seen, self.at)
            if found:
                text = self.seen[self.at:found.end()]
                self.at = found.end()
                return text
            if time.monotonic() > end or self.read_some(0.1) == b"":
                raise Missing(f"{what!r} in {self.seen[self.at:]!r}")

    def send(self, data):
        while data:
            data = data[os.write(self.fd, data):]
            while self.read_some(0) not in (None, b""):
                pass

    def interrupt(self):
        """Ctrl-C, once the program has had the time to go on reading."""
        time.sleep(0.2)
        self.send(b"\x03")

    def prompt(self):
        """Waits until the editor reads; returns what came before, without escape sequences."""
        before = self.wait(PASTE_ON) if self.escapes else b""
        return plain(before + self.wait(PROMPT))

    escapes = True

    def ask(self, line):
        """Sends a line and returns what came up to the next prompt, without the line itself."""
        if isinstance(line, str):
            line = line.encode()
        start = self.at
        self.send(line + b"\r")
        self.prompt()
        text = plain(self.seen[start:self.at])
        return text.split(b"\n", 1)[1] if b"\n" in text else text

    def end(self, seconds=SLOW):
        """The exit status, once the program has ended; 128 + signal where one ended it."""
        if self.status is None:
            limit = time.monotonic() + seconds
            while self.read_some(0.05) != b"" and time.monotonic() < limit:
                pass
            while time.monotonic() < limit:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    if self.status < 0:
                        self.status = 128 - self.status
                    break
                time.sleep(0.02)
            else:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.status = "no end"
        return self.status

    def cooked(self):
        """The terminal's modes are those it began with, and pastes are no longer marked."""
        return termios.tcgetattr(self.fd)[:4] == self.modes[:4] and self.seen.rfind(
            PASTE_OFF) >= self.seen.rfind(PASTE_ON)

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def plain(data):
    return ESCAPES.sub(b"", data).replace(b"\r\n", b"\n")


def default_model():
    """The cache that holds the default model; None: there is none."""
    cache = os.environ.get("RUVLLM_CACHE_DIR") or os.path.expanduser("~/.cache/ruvllm")
    listed = subprocess.run(
        [PROGRAM, "list", "--cache-dir", cache], capture_output=True, text=True, check=False
    ).stdout
    model = next((w for w in listed.splitlines() if w.startswith("smollm2 ")), "")
    return None if "not here" in model or not model else cache


def finish():
    print(f"1..{cases}")
