"""In which language a page is, and the words of its scripts."""

from __future__ import annotations

import hashlib
from functools import cache

from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.utils.cache import add_never_cache_headers, patch_cache_control
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

# What programs read is English: codes and details are a contract.
OF_PROGRAMS = ("/api/", "/v1/", "/metrics")
FOR_GOOD_S = 3600 * 24 * 365

_catalog = JavaScriptCatalog.as_view(packages=["chat"])


class PageLanguageMiddleware(LocaleMiddleware):
    """The language that was chosen, else the one that the browser asks for."""

    def process_request(self, request: HttpRequest) -> None:
        """Programs are spared."""
        if request.path_info.startswith(OF_PROGRAMS):
            translation.activate(settings.LANGUAGE_CODE)
        else:
            super().process_request(request)


@require_safe
def script_words(request: HttpRequest) -> HttpResponseBase:
    """`/words.js?language=`: what scripts say; the address tells the edition too. 404 for no language of ours."""
    language = request.GET.get("language", "")
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        words = _catalog(request)
    # While a release is replaced, a page of the new one may ask a process of the old one.
    if request.GET.get("edition") == edition():
        patch_cache_control(words, public=True, max_age=FOR_GOOD_S, immutable=True)
    else:
        add_never_cache_headers(words)
    return words


@cache
def edition() -> str:
    """Changes with any translation."""
    digest = hashlib.sha256()
    for folder in settings.LOCALE_PATHS:
        for path in sorted(folder.rglob("djangojs.mo")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
