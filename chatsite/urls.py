"""Which view answers which address."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/", include("chat.api.urls")),
]
handler500 = "chat.api.middleware.server_error"
