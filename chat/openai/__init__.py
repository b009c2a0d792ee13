"""The API under /v1/, which speaks as OpenAI's does: see docs/openai.md for what of it."""
