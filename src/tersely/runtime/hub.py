"""Artifacts of the Hugging Face Hub: `hub:owner/name@revision` becomes a folder in the user's cache."""

from __future__ import annotations

import contextlib
import glob
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from .. import __version__
from .. import artifact as artifacts
from ..artifact import MANIFEST, is_artifact
from ..atomic import atomic_folder
from ..errors import Failure, UserError, missing_package
from .choose import cache_folder, write_cached, writing_cache
from .predictor import HUB

if TYPE_CHECKING:
    from huggingface_hub import HfApi

MAIN = "main"
TIMEOUT = 10.0
"""Seconds until a Hub that does not say which commit a revision is counts as out of reach."""
_PART = r"\w(?:[\w.-]*\w)?"
_FORM = re.compile(rf"{HUB}(?P<repository>(?:{_PART}/)?{_PART})(?:@(?P<revision>\w[\w./+-]*))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOG_IN = "Of a private repository: log in with 'hf auth login'."


@dataclass(frozen=True)
class Address:
    """A repository of models on the Hub, and a branch, a tag or a commit of it."""

    repository: str
    revision: str = MAIN

    def __str__(self) -> str:
        return f"{HUB}{self.repository}" + ("" if self.revision == MAIN else f"@{self.revision}")

    def home(self) -> Path:
        """Folder in the cache for all that is known of the repository. No name on the Hub has two hyphens in a row."""
        return cache_folder() / "hub" / self.repository.replace("/", "--")

    def copy(self, commit: str) -> Path:
        """Place of a commit's files: a folder that is called as the repository is, since models are shown by it."""
        return self.home() / commit / self.repository.rpartition("/")[2]


def parse(text: str) -> Address:
    """Read an address.

    >>> parse("hub:owner/name@v1.0")
    Address(repository='owner/name', revision='v1.0')
    >>> parse("hub:owner/name/file")
    Traceback (most recent call last):
    tersely.errors.UserError: hub:owner/name/file: This is no address on the Hub. Write hub:owner/name or \
hub:owner/name@revision.
    """
    found = _FORM.fullmatch(text)
    if found is None or ".." in text or "--" in found["repository"]:
        hint = "Write hub:owner/name or hub:owner/name@revision."
        raise UserError("This is no address on the Hub.", where=text, hint=hint)
    return Address(found["repository"], found["revision"] or MAIN)


def fetched(address: Address) -> Path:
    """The copy of the commit that the address means now, in the cache; without connection the last one known.

    Its checksums were checked before it appeared there. Whoever loads it checks them again.
    """
    if _COMMIT.fullmatch(address.revision) and is_artifact(address.copy(address.revision)):
        return address.copy(address.revision)  # a commit never changes: no request is needed
    commit = _commit(address)
    place = address.copy(commit)
    if not is_artifact(place):
        _download(address, commit, place)
    _keep_commit(address, commit)
    return place


def _commit(address: Address) -> str:
    """What the Hub says, or said last, that the revision is."""
    api = _api()
    try:
        with _explained(address):
            commit = api.model_info(address.repository, revision=address.revision, timeout=TIMEOUT).sha or ""
    except _Unreachable:
        with contextlib.suppress(OSError):
            known = _commit_file(address).read_text(encoding="utf-8").strip()
            if _COMMIT.fullmatch(known) and is_artifact(address.copy(known)):
                return known
        raise
    if not _COMMIT.fullmatch(commit):  # it becomes the name of a folder
        raise UserError(f"The Hub gave no commit for the revision '{address.revision}'.", where=str(address))
    return commit


def _download(address: Address, commit: str, place: Path) -> None:
    """Fetch the manifest, then what it lists: a repository may hold large files beside the artifact's."""
    from filelock import FileLock  # huggingface_hub brings it

    api = _api()
    with writing_cache(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(address.home() / f"{commit}.lock"):  # workers that begin together download once
            if is_artifact(place):
                return
            shutil.rmtree(place, ignore_errors=True)
            with atomic_folder(place) as scratch, _explained(address):
                api.hf_hub_download(address.repository, MANIFEST, revision=commit, local_dir=scratch)
                names = [glob.escape(name) for name in artifacts.read_manifest(scratch).files]
                api.snapshot_download(address.repository, revision=commit, local_dir=scratch, allow_patterns=names)
                shutil.rmtree(scratch / ".cache", ignore_errors=True)  # notes of huggingface_hub
                artifacts.checked_manifest(scratch)


def _keep_commit(address: Address, commit: str) -> None:
    """Note which commit the revision is, for times without connection; a cache that is only read goes without."""
    place = _commit_file(address)
    with contextlib.suppress(OSError):
        if not place.is_file() or place.read_text(encoding="utf-8").strip() != commit:
            write_cached(place, f"{commit}\n")


def _commit_file(address: Address) -> Path:
    return address.home() / "revisions" / quote(address.revision, safe="")


def _api() -> HfApi:
    """The Hub's own client, imported only when an address asks for it."""
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise missing_package("huggingface_hub", f"an address that starts with '{HUB}'", "hub") from None
    return HfApi(library_name="tersely", library_version=__version__)


class _Unreachable(UserError):
    """The Hub did not answer; a copy that is there already will do."""


@contextlib.contextmanager
def _explained(address: Address) -> Iterator[None]:
    """Say in one line what went wrong between here and the Hub. Errors of the own disk pass."""
    try:
        yield
    except UserError as error:  # of the manifest or a checksum; the scratch folder means nothing to the user
        raise UserError(error.what, where=str(address), hint=error.hint) from error
    except OSError as error:
        if error.errno is not None and not isinstance(error, (ConnectionError, TimeoutError)):
            raise
        raise _explanation(error, address) from error
    except Exception as error:  # of the HTTP client and of hf_xet, which share no base class but this one
        raise _explanation(error, address) from error


def _explanation(error: Exception, address: Address) -> UserError:
    from huggingface_hub import constants, errors

    where, revision = str(address), address.revision
    if isinstance(error, errors.GatedRepoError):
        hint = "Ask for access on its page, then log in with 'hf auth login'."
        return UserError("The repository is open only to those whom its owner gave access.", where=where, hint=hint)
    if isinstance(error, errors.RepositoryNotFoundError):
        return UserError("There is no such repository on the Hub.", where=where, hint=f"Check the name. {_LOG_IN}")
    if isinstance(error, errors.RevisionNotFoundError):
        hint = "Name a branch, a tag or a commit."
        return UserError(f"The repository has no revision '{revision}'.", where=where, hint=hint)
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        hint = f"Upload one with: hf upload {address.repository} DIR"
        return UserError(f"The repository is not a Tersely artifact: it has no {MANIFEST}.", where=where, hint=hint)
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    if status is not None and status < 500 and status != 429:
        return UserError(f"The Hub refused with status {status}.", where=where, hint=_LOG_IN)
    # Errors of the HTTP client (requests, httpx, httpx2 in turn) share a base with the package's own.
    if isinstance(error, (OSError, *errors.HfHubHTTPError.__bases__)):
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"status {status}" if status else ""
        what = f"{constants.ENDPOINT} cannot be reached{f' ({reason})' if reason else ''}"
        wanted = address.repository + ("" if revision == MAIN else f" --revision {revision}")
        hint = f"Connect, or run 'hf download {wanted} --local-dir DIR' where there is a connection and give DIR."
        return _Unreachable(f"{what}, and the cache has no copy.", where=where, hint=hint)
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return Failure(f"The download failed: {reason.rstrip('.')}.", where=where, hint="Try again.")
