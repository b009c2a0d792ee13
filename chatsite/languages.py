"""In which language a page is, and the words of its scripts."""

from __future__ import annotations

import hashlib
from functools import cache

from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

# What programs read is English: codes and details are a contract.
OF_PROGRAMS = ("/api/", "/metrics")
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


@cache_control(public=True, max_age=FOR_GOOD_S, immutable=True)
@require_safe
def words(request: HttpRequest) -> HttpResponseBase:
    """`/words.js?language=`: what scripts say; the address tells the edition too. 404 for no language of ours."""
    language = request.GET.get("language", "")
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        return _catalog(request)


@cache
def edition() -> str:
    """Changes with any translation."""
    digest = hashlib.sha256()
    for folder in settings.LOCALE_PATHS:
        for path in sorted(folder.rglob("djangojs.mo")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
