"""PostgreSQL refuses to run as root: who runs it then, and where it can keep its data."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from launcher.places import private_folder
from launcher.problems import SetupProblem

UNPRIVILEGED = ("nobody", "daemon")
# Only used by root, and only where the unprivileged user cannot reach the checkout.
OUTSIDE = Path("/var/lib/palaver")


class Identity(TypedDict, total=False):
    """Arguments of `subprocess.Popen` that change the user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """The user that PostgreSQL runs as."""

    uid: int
    gid: int

    @classmethod
    def fit_for(cls, data: Path) -> Account:
        """Ourselves, unless we are root: then the owner of the data, or somebody without privileges."""
        if os.geteuid():
            return cls(os.geteuid(), os.getegid())
        if data.exists() and data.stat().st_uid:
            return cls(data.stat().st_uid, data.stat().st_gid)
        for name in UNPRIVILEGED:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise SetupProblem(
            "PostgreSQL cannot run as root, and there is no user nobody to run it as",
            "Run make as an ordinary user, or name a PostgreSQL of yours in DATABASE_URL.",
        )

    @property
    def identity(self) -> Identity:
        """How a child becomes this user."""
        if os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        """Whether this user can traverse to the folder."""
        return os.geteuid() != 0 or self._succeeds("/bin/sh", "-c", 'cd -- "$0"', str(folder))

    def can_run(self, program: Path) -> bool:
        """Whether this user can execute the program."""
        return os.geteuid() != 0 or self._succeeds(str(program), "--version")

    def own(self, folder: Path) -> None:
        """Make the folder, for this user only."""
        private_folder(folder)
        folder.chmod(0o700)
        if not os.geteuid():
            os.chown(folder, self.uid, self.gid)

    def _succeeds(self, *command: str) -> bool:
        try:
            ended = subprocess.run(command, cwd="/", capture_output=True, check=False, **self.identity)
        except PermissionError:
            return False
        return ended.returncode == 0


def reachable(account: Account, folder: Path) -> Path:
    """The folder itself, or where the account cannot enter it a stand-in outside the checkout."""
    if account.can_enter(private_folder(folder)):
        return folder
    return _outside(folder)


def runnable(account: Account, package: Path, program: str) -> Path:
    """`package`/`program`, or where the account cannot run that, the same in a copy of package and libraries."""
    if account.can_run(package / program):
        return package / program
    copies = _outside(package)
    if not (copies / package.name / program).exists():
        libraries = package.with_name(package.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, copies / libraries.name, dirs_exist_ok=True)
        draft = copies / f"{package.name}.new"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(package, draft)
        draft.rename(copies / package.name)
    return copies / package.name / program


def stand_in(folder: Path) -> Path:
    """The folder outside the checkout that is used in place of an unreachable one; not always there."""
    return OUTSIDE / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def _outside(folder: Path) -> Path:
    for made in (OUTSIDE, stand_in(folder)):
        private_folder(made)
        made.chmod(0o711)  # ours, whatever the umask: passed through, not listed
    return stand_in(folder)
