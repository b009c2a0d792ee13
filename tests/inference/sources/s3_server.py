"""A real S3 server: rclone's, on loopback, as a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

KEY, SECRET, BUCKET = "alice", "a-secret-of-alice", "models"
RCLONE = Path(sys.executable).with_name("rclone")


class S3Server:
    """Keeps its buckets in a folder; can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        """Of objects laid into the folder later it knows nothing for five minutes."""
        (folder / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
        (folder / "rclone.conf").touch()
        self._folder = folder
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns once it answers."""
        command = [str(RCLONE), "serve", "s3", str(self._folder / "data"), "--addr", f"127.0.0.1:{self.port}"]
        options = ["--auth-key", f"{KEY},{SECRET}", "--config", str(self._folder / "rclone.conf")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        for _ in range(500):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((self._folder / "log").read_text())

    @property
    def runs(self) -> bool:
        """Unless it was killed."""
        return self._process.poll() is None

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()
        self._process.wait()

    def put(self, prefix: str, made: dict[str, bytes]) -> None:
        """Upload them below a prefix."""
        for name, content in made.items():
            self.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=content)

    @cached_property
    def client(self) -> Any:
        """Of the owner."""
        import boto3

        return boto3.session.Session(KEY, SECRET, region_name="us-east-1").client("s3", endpoint_url=self.url)


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port
