"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, as an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
BINARIES = next((place for place in _PLACES if (place / "initdb").exists()), None)


def why_not() -> str | None:
    """Return why PostgreSQL cannot be started here; None if it can."""
    if BINARIES is None:
        return "PostgreSQL is not installed (apt: postgresql)"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres or nobody"
    return None


def _user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class Postgres:
    """A server that can be started, killed and started again; ``close`` removes it."""

    def __init__(self, fsync: bool = True) -> None:
        self._fsync = "on" if fsync else "off"
        self.folder = Path(tempfile.mkdtemp(prefix="btfl-pg-"))
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = _user()
            assert user is not None
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://btfl@127.0.0.1:{self.port}/postgres"
        self._data = self.folder / "data"
        self._run("initdb", "-D", str(self._data), "-U", "btfl", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        assert BINARIES is not None
        subprocess.run(
            [BINARIES / program, *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=60,
            **self._as,  # type: ignore[call-overload]
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync={self._fsync}"
        log = str(self.folder / "log")
        for attempt in range(40):
            try:
                self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "-t", "50", "start")
                return
            except subprocess.CalledProcessError:  # what is left of the one that was killed still holds the memory
                if attempt == 39:
                    raise
                time.sleep(0.25)

    def kill(self) -> None:
        """Kill it as a power cut would: SIGKILL to all of its processes."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, 9)
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
        ).stdout.split()
        for child in children:  # they would end by themselves, and hold the memory until then
            try:
                os.kill(int(child), 9)
            except ProcessLookupError:
                continue
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def close(self) -> None:
        """Stop it and remove its folder."""
        try:
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
