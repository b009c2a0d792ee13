"""The product's settings, with passwords hashed in no time: a strong hash takes half a second of CPU, on purpose."""

from chatsite.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
