"""Names of static files carry a hash of what is in them, so that browsers keep them for good."""

from __future__ import annotations

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class HashedFiles(ManifestStaticFilesStorage):
    """Django's own, for modules that import modules too: a page never meets the scripts of another release."""

    support_js_module_import_aggregation = True
