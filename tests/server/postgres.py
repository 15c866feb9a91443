"""A PostgreSQL server of its own for tests, on a unix socket in a temporary folder."""
import glob
import os
import shutil
import subprocess
import tempfile
import time


def find():
    """The folder of its programs; None: it is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return os.path.dirname(found[-1]) if found else None


class Postgres:
    """Not as root: PostgreSQL refuses that."""

    def __init__(self):
        self.bin = find()
        self.folder = tempfile.mkdtemp(prefix="ruvllm-pg-", dir="/tmp")
        self.user = {}
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self.process = None
        self.data = os.path.join(self.folder, "data")
        self.url = f"postgresql://postgres@/postgres?host={self.folder}"
        self.run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--locale=C", "-E",
                 "UTF8", "-N")
        self.start()

    def run(self, name, *arguments):
        return subprocess.run([os.path.join(self.bin, name), *arguments], check=True,
                              capture_output=True, cwd="/", **self.user).stdout.decode()

    def sql(self, text):
        return self.run("psql", "-X", "-q", "-A", "-t", "-d", self.url, "-c", text).strip()

    def start(self):
        self.process = subprocess.Popen(
            [os.path.join(self.bin, "postgres"), "-D", self.data, "-k", self.folder, "-c",
             "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self.user)
        for _ in range(1000):
            try:
                self.sql("SELECT 1")
                return
            except subprocess.CalledProcessError:
                time.sleep(0.02)
        raise SystemExit("PostgreSQL does not start")

    def stop(self):
        """At once: connections are cut."""
        self.process.send_signal(3)  # SIGQUIT
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
