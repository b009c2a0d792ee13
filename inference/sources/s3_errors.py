"""botocore's errors in our words: theirs hold addresses, which may hold keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from inference.sources.errors import AccessDenied, BadSource, FilesDiffer, NotFound, SourceError, Unreachable
from inference.sources.source import Source

KEYS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or an instance role that may list and read there."
ENDPOINT = "Check AWS_ENDPOINT_URL_S3 and the network; what is fetched already is kept."


@contextmanager
def told(source: Source) -> Iterator[None]:
    """Raise what boto3 raises as `SourceError`."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

    try:
        yield
    except ClientError as error:
        raise _answered(str(source), error.response) from None
    except S3DownloadFailedError:
        raise changed_meanwhile() from None
    except RetriesExceededError:
        raise Unreachable(f"the server of {source} broke off again and again", ENDPOINT) from None
    except (HTTPClientError, ConnectionError) as error:
        raise Unreachable(f"the server of {source} cannot be reached ({type(error).__name__})", ENDPOINT) from None
    except (BotoCoreError, Boto3Error) as error:
        raise _refused(str(source), error) from None
    except ValueError:
        raise BadSource("the address in AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL cannot be one", ENDPOINT) from None


def _answered(source: str, response: dict[str, dict[str, object]]) -> SourceError:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = re.sub(r"[^\w.]", "", str(response.get("Error", {}).get("Code", "")))[:60]
    match status, code:
        case _, "NoSuchBucket":
            return NotFound(f"there is no bucket for {source}", "Check its name, AWS_ENDPOINT_URL_S3 and the region.")
        case (404, _) | (412, _):
            return changed_meanwhile()
        case (401, _) | (403, _):
            return AccessDenied(f"the server denies access to {source} ({code or status})", KEYS)
        case (301, _) | (307, _):
            return BadSource(f"the bucket of {source} is in another region", "Set AWS_REGION to it.")
        case (400, _) if code in ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"):
            return AccessDenied(f"the server denies access to {source} ({code})", KEYS)
        case _:
            return Unreachable(f"the server of {source} fails with {status} {code}".rstrip(), ENDPOINT)


def changed_meanwhile() -> FilesDiffer:
    """An object is not the listed one any more."""
    return FilesDiffer("an object changed while the bucket was read", "Fetch again once the upload is complete.")


def _refused(source: str, error: Exception) -> SourceError:
    from botocore import exceptions as of

    denied = (
        of.NoCredentialsError,
        of.PartialCredentialsError,
        of.CredentialRetrievalError,
        of.SSOError,
        of.TokenRetrievalError,
        of.MetadataRetrievalError,
        of.ProfileNotFound,
    )
    away = (of.ResponseStreamingError, of.IncompleteReadError, of.ConnectionError, of.EndpointConnectionError)
    if isinstance(error, denied):
        return AccessDenied(f"no credentials for {source} ({type(error).__name__})", KEYS)
    if isinstance(error, away):
        return Unreachable(f"the server of {source} cannot be reached ({type(error).__name__})", ENDPOINT)
    return BadSource(
        f"{source} cannot be asked for ({type(error).__name__})",
        "Check its name, AWS_ENDPOINT_URL_S3, AWS_REGION and AWS_PROFILE.",
    )
