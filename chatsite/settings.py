"""Every setting, and the only place that reads the environment."""

from __future__ import annotations

from pathlib import Path

from csp.constants import NONCE, SELF

from chat.api.schema.words import ABOUT
from chatsite import cors
from chatsite.database.deadline import DeadlinedConnection, HastyConnection
from chatsite.given import Given, end_in_one_line

BASE_DIR = Path(__file__).resolve().parent.parent

end_in_one_line()
env = Given()
# What `make run` wrote, so that manage.py in another terminal meets the same database. The environment wins.
env.read_env(Path(env.str("PALAVER_STATE", default=str(BASE_DIR / ".palaver"))) / "run.env")

DEBUG = env.switch("DEBUG", default=False)
SECRET_KEY = env.text("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
# Sites whose scripts may call the API, by key. Without one nothing says a word of it.
CORS_ALLOWED_ORIGINS = env.list("CORS_ALLOWED_ORIGINS", default=[])
CORS_URLS_REGEX = cors.PATHS
CORS_ALLOW_CREDENTIALS = False
CORS_ALLOW_METHODS = cors.METHODS
CORS_ALLOW_HEADERS = cors.ASKED
CORS_EXPOSE_HEADERS = cors.TOLD

INSTALLED_APPS = [
    "whitenoise",
    "chatsite.admin_site.AuditedAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "corsheaders",
    "csp",
    "django_eventstream",
    "rest_framework",
    "drf_spectacular",
    "auditlog",
    "scheduler",
    "chat",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    *["corsheaders.middleware.CorsMiddleware"] * bool(CORS_ALLOWED_ORIGINS),
    "chatsite.nul.refuse_nul",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "chat.api.allowance.AllowanceMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "chatsite.languages.PageLanguageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "chat.api.middleware.ProblemMiddleware",
]

ROOT_URLCONF = "chatsite.urls"
ASGI_APPLICATION = "chatsite.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The server lets go as well. Of a transaction whose process is paused or whose machine is lost: for hours it would keep
# its rows locked. And of a statement that we gave up: waiting for a lock it would keep its connection, and the reaper's
# its advisory lock, until it got it.
SESSION_LIMITS = "-c idle_in_transaction_session_timeout=30s -c client_connection_check_interval=2s"
DATABASES = {"default": env.postgres("DATABASE_URL")}
DATABASES["default"]["ENGINE"] = "chatsite.database"
# A pool, not persistent connections: threads come and go, and a stream must give its connection back. Each request has
# a thread of its own under ASGI; those beyond the pool wait for a connection, and after the timeout are told 503.
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 3,
    "options": SESSION_LIMITS,
    **DATABASES["default"].get("OPTIONS", {}),
    "pool": {
        "connection_class": DeadlinedConnection,
        "min_size": 1,
        "max_size": env.whole("DATABASE_POOL", 5),
        "timeout": 10,
        # Its pauses between attempts double until then: by default, after a minute's outage, for a minute more.
        "reconnect_timeout": 2,
    },
}
# A connection that died in the pool (Postgres restarted) is replaced before it is used.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# A copy of the database, which lags behind it: for lists, as far as it has what their user must see.
if env.str("DATABASE_REPLICA_URL", default=""):
    primary, replica = DATABASES["default"], env.postgres("DATABASE_REPLICA_URL")
    # The primary has the same, and is asked where this one does not answer at once.
    hasty = {**primary["OPTIONS"]["pool"], "connection_class": HastyConnection, "timeout": 0.5}
    DATABASES["replica"] = {
        **replica,
        **{name: primary[name] for name in ("ENGINE", "CONN_HEALTH_CHECKS")},
        "OPTIONS": {
            "connect_timeout": 3,
            "options": f"{SESSION_LIMITS} -c default_transaction_read_only=on",
            **replica.get("OPTIONS", {}),
            "pool": hasty,
        },
        "TEST": {"MIRROR": "default"},
    }
    DATABASE_ROUTERS = ["chatsite.database.replica.Router"]

AUTH_USER_MODEL = "chat.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "sign-in"
# Off: accounts are made by operators, in the admin.
SIGN_UP = env.switch("SIGN_UP", default=True)
# Password hashing is Django's own: PBKDF2 with the iterations that each release thinks right.

LANGUAGE_CODE = "en"
# Of the pages; what the API says is English.
LANGUAGES = [("en", "English"), ("fa", "فارسی"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_AGE = 3600 * 24 * 365
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", default=str(BASE_DIR / "static-root"))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "chatsite.static_files.HashedFiles"},
}

# Plain HTTP is for loopback: with HTTPS on, cookies are sent over TLS only and browsers are told to stay there.
HTTPS = env.switch("HTTPS", default=not DEBUG)
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
LANGUAGE_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 3600 * 24 * 365 if HTTPS else 0
# HSTS for other names below ours, and for good: not ours to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.switch("BEHIND_PROXY", default=False) else None
X_FRAME_OPTIONS = "DENY"
# Everything comes from this site. Inline is only the import map, known by its nonce; no style, and no handler.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": [SELF, NONCE],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "chat.api.authentication.ApiKeyAuthentication",
        "chat.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated", "chat.api.authentication.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["chat.api.parsers.SturdyJSONParser"],
    "DEFAULT_THROTTLE_CLASSES": ["chat.api.throttling.CredentialThrottle"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "chat.api.negotiation.OnlyJson",
    "DEFAULT_SCHEMA_CLASS": "chat.api.schema.inspector.Described",
    "EXCEPTION_HANDLER": "chat.api.errors.answer",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Palaver",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "DESCRIPTION": ABOUT,
    "PREPROCESSING_HOOKS": ["chat.api.schema.generation.below_api"],
    "POSTPROCESSING_HOOKS": [],
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

# Two servers in production, with their own ideas of memory and durability; they may be one in development.
# Celery's queues need one server: kombu knows no cluster.
BROKER_URL = env.redis("BROKER_URL", may_be_cluster=False)
STREAMS_URL = env.redis("STREAMS_URL", may_be_cluster=True)
EVENTSTREAM_STORAGE_CLASS = "chat.streaming.storage.RunStreamStorage"
EVENTSTREAM_CHANNELMANAGER_CLASS = "chat.streaming.channels.RunChannelManager"

# Where files of models are kept that are not in a local folder.
MODEL_CACHE = Path(
    env.str("MODEL_CACHE", default=f"{env.str('PALAVER_STATE', default=str(BASE_DIR / '.palaver'))}/model-cache")
)

# Refused by bytes before it is tokenised: a megabyte takes the tokenizer seconds.
MAX_CONTENT_BYTES = env.whole("MAX_CONTENT_BYTES", 64 * 1024)
# JSON may spell one byte with six, as in \\u0041; and there are other keys.
DATA_UPLOAD_MAX_MEMORY_SIZE = 6 * MAX_CONTENT_BYTES + 4096

# Under /v1/, tools that a request offers and does not insist on: some clients offer theirs with every message. A model
# that calls none is within the protocol, but what needs them learns of it late.
IGNORE_TOOLS = env.switch("IGNORE_TOOLS", default=False)

# Of one API key or one session. Beyond them it is told to wait, whatever its user's tier allows.
REQUESTS_PER_MINUTE = env.whole("REQUESTS_PER_MINUTE", 600)

# By which a monitoring system reads /metrics. Empty: nobody does but operators who are signed in.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="").strip()
# Within which whoever waits should have a slot: `palaver_wanted_workers` is how many workers that takes. About as long
# as a worker takes to load: with less, more are asked for than anybody needs once they are there.
AUTOSCALE_WAIT_S = env.seconds("AUTOSCALE_WAIT_S", 60.0, least=1)

LEASE_S = env.whole("LEASE_S", 10)
REAPER_PERIOD_S = env.seconds("REAPER_PERIOD_S", 2.0, least=0.01)
# A reservation is made within the transaction that stores its run, which the database ends when it hears nothing for
# 30 s, and each statement of which has 10: what has no row by now gets none.
UNBORN_S = env.whole("UNBORN_S", 120, least=0)
# A run that so many workers died with ends `failed`.
MAX_ATTEMPTS = env.whole("MAX_ATTEMPTS", 5)
# Messages a queue may hold beyond what workers run: the fewer, the longer order can still change.
DISPATCH_LOOKAHEAD = env.whole("DISPATCH_LOOKAHEAD", 8, least=0)
# A turn of a chat prefers the worker whose prefix cache is warm for it.
AFFINITY = env.switch("AFFINITY", default=True)
# Titles and summaries. Off while workers or reapers of a release before them run: these would take them for replies.
BACKGROUND_RUNS = env.switch("BACKGROUND_RUNS", default=True)
# How long a web process that stops lets answers go on that end with their connection.
WEB_DRAIN_S = env.whole("WEB_DRAIN_S", 30, least=0)
HEARTBEAT_S = 15
# After it a feed ends and its page comes back: so long may a revoked credential hear of chats.
FEED_S = 600
# Open event streams in one web process. A page has one.
STREAMS_PER_USER = env.whole("STREAMS_PER_USER", 20)
STREAMS_PER_PROCESS = env.whole("STREAMS_PER_PROCESS", 10_000)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "filters": {
        "security": {"()": "chatsite.log.SecurityInOneLine"},
        "no_refusals": {"()": "chatsite.log.NoRefusals"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["security"]}},
    "root": {"handlers": ["console"], "level": env.level("LOG_LEVEL", default="INFO")},
    # Below INFO it logs SQL with its parameters: what people wrote.
    "loggers": {
        "django.db.backends": {"level": "INFO"},
        "django.request": {"filters": ["no_refusals"]},
        # It says at every start, as a warning, that a CPU has no Triton.
        "vllm.triton_utils": {"level": "ERROR"},
    },
}
