"""`/admin/load/`: the load, for operators. Its script fetches the figures alone, again and again."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from chat.connections import given_back
from chat.load.charts import charts
from chat.load.history import SAMPLE_S, last_hour
from chat.load.picture import draw

# Its figures are of tiers and models, and show nothing of a user.
PERMISSIONS = ("scheduler.view_tier", "scheduler.view_model")
# Samples that are older than several of their pauses: nobody takes any.
STALE_S = 6 * SAMPLE_S


@given_back()
@require_safe
@permission_required(PERMISSIONS, raise_exception=True)
def page(request: HttpRequest) -> HttpResponse:
    """The whole page, or with `?figures` what changes of it."""
    picture, samples = draw(), last_hour()
    shown = {
        "picture": picture,
        "models": [(load, charts(load, samples)) for load in picture.models],
        "is_sampled": bool(samples) and samples[-1].age_s <= STALE_S,
    }
    if "figures" in request.GET:
        return render(request, "load/figures.html", shown)
    return render(request, "load/page.html", {**admin.site.each_context(request), "title": "Load", **shown})
