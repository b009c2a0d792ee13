"""Models of the Hugging Face hub, or of a mirror in HF_ENDPOINT: huggingface_hub fetches them into its own cache."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inference.sources import weights
from inference.sources.choice import Choice
from inference.sources.errors import AccessDenied, NotFound, SourceError, Unreachable
from inference.sources.hashes import Hashes
from inference.sources.order import Fetched, Order
from inference.sources.progress import Progress

AWAY = "Check the network, HF_ENDPOINT and HF_HUB_OFFLINE; what is fetched already is kept."


def obtain(order: Order, place: Path, progress: Progress) -> Fetched:
    """The snapshot's folder, and the commit that it is of. Raises `SourceError`, `OSError`."""
    with told(order):
        commit = _commit(order)
        folder = _at_hand(order, commit) or _download(order, commit, progress)
    found = weights.names_in(folder)
    order.check_sizes(found)
    wanted = {name: size for name, size in found.items() if order.choice.takes(name)}
    progress.begin(sum(wanted.values()))
    manifest = Hashes(place / f"{folder.name}.json").manifest(folder, wanted, progress.add)
    if order.choice is Choice.WHOLE and not order.expected:
        weights.check(folder)
    return Fetched(folder, manifest, folder.name)


def _commit(order: Order) -> str:
    """What the revision stands for now, or stood for when the hub was last there."""
    from huggingface_hub import HfApi

    return HfApi().resolve_revision(order.source.name, revision=order.revision or None)


def _at_hand(order: Order, commit: str) -> Path | None:
    """The commit's folder, if it is whole, without asking the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError, SourceError):
        folder = Path(
            snapshot_download(order.source.name, revision=commit, local_files_only=True, **patterns(order.choice))
        )
        # Without the hub's list of files it gives back what there is, be it half.
        order.check_sizes(weights.names_in(folder))
        return folder
    return None


def _download(order: Order, commit: str, progress: Progress) -> Path:
    """Once its files are seen to be servable; goes on where an earlier download stopped."""
    from huggingface_hub import HfApi, snapshot_download

    info = HfApi().model_info(order.source.name, revision=commit, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    order.check_sizes(sizes)
    progress.begin(sum(size for name, size in sizes.items() if order.choice.takes(name)))
    return Path(
        snapshot_download(order.source.name, revision=commit, tqdm_class=_bar_for(progress), **patterns(order.choice))
    )


@contextmanager
def told(order: Order) -> Iterator[None]:
    """Raise what huggingface_hub raises as `SourceError`: its own texts hold signed addresses."""
    from huggingface_hub import errors

    source = str(order.source)
    try:
        yield
    except errors.RepositoryNotFoundError as error:
        if isinstance(error, errors.GatedRepoError):
            raise AccessDenied(f"{source} is gated", "Ask for access on its page, and set HF_TOKEN.") from None
        raise NotFound(
            f"the hub has no {source}, or not for us", "Check its name; closed ones want HF_TOKEN."
        ) from None
    except errors.RevisionNotFoundError:
        raise NotFound(f"{source} has no revision {order.revision}", "Give a branch, a tag or a commit.") from None
    except (errors.LocalEntryNotFoundError, errors.RevisionResolutionError):
        raise Unreachable(f"{source} is not here whole, and the hub cannot be reached", AWAY) from None
    except errors.HfHubHTTPError as error:
        raise _answered(source, error.response.status_code) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise Unreachable(f"the hub of {source} cannot be reached ({type(error).__name__})", AWAY) from None
    except SourceError:
        raise
    # Beneath lie httpx, hf-xet and more, each with a tree of errors of its own.
    except Exception as error:
        raise Unreachable(f"{source} could not be fetched ({type(error).__name__})", AWAY) from None


def _answered(source: str, status: int) -> SourceError:
    if status in (401, 403):
        return AccessDenied(f"the hub denies access to {source} ({status})", "Set HF_TOKEN to one that may read it.")
    return Unreachable(f"the hub of {source} fails with {status}", AWAY)


def patterns(choice: Choice) -> dict[str, Any]:
    """Which files `snapshot_download` shall bring: none of folders below."""
    return {"allow_patterns": list(choice.patterns), "ignore_patterns": ["*/*", ".*"]}


def _bar_for(progress: Progress) -> type[Any]:
    """A progress bar that shows nothing and counts the bytes of all files."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # One of the two that count bytes, the other counts what the network carried.
            self._counts = str(kwargs.get("desc", "")).startswith("Reconstructing")
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts:
                progress.add(int(n or 0))
            return None

    return Bar
