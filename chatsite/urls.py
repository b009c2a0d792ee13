"""Which view answers which address."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.i18n import set_language

from chat import accounts, key_pages, pages, posting
from chat.load.scraping import scrape
from chatsite.languages import script_words

urlpatterns: list[URLPattern | URLResolver] = [
    path("", pages.home, name="home"),
    path("chats/<uuid:chat_id>", pages.conversation, name="conversation"),
    path("ask", posting.ask, name="ask-anew"),
    path("chats/<uuid:chat_id>/ask", posting.ask, name="ask"),
    path("chats/<uuid:chat_id>/stop", posting.stop, name="stop"),
    path("chats/<uuid:chat_id>/retry", posting.retry, name="retry"),
    path("chats/<uuid:chat_id>/continue", pages.continue_chat, name="continue-chat"),
    path("chats/<uuid:chat_id>/export.md", pages.export, {"suffix": "md"}, name="export-markdown"),
    path("chats/<uuid:chat_id>/export.json", pages.export, {"suffix": "json"}, name="export-json"),
    path("usage", pages.usage, name="own-usage"),
    path("keys", key_pages.keys, name="own-keys"),
    path("keys/<uuid:key_id>/revoke", key_pages.revoke, name="revoke-key"),
    path("language", set_language, name="set_language"),
    path("words.js", script_words, name="words"),
    path("sign-in", accounts.SignIn.as_view(), name="sign-in"),
    path("sign-up", accounts.SignUp.as_view(), name="sign-up"),
    path("sign-out", accounts.SignOut.as_view(), name="sign-out"),
    path("admin/login/", accounts.throttled(admin.site.login)),
    path("admin/", admin.site.urls),
    path("metrics", scrape, name="metrics"),
    path("api/", include("chat.api.urls")),
    path("v1/", include("chat.openai.urls")),
]
handler400 = "chat.api.middleware.bad_request"
handler500 = "chat.api.middleware.server_error"
