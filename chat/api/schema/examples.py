"""One chat of one user: what the description's examples are taken from."""

from __future__ import annotations

from typing import Any

from chat.api.schema.codes import A_RUN

CHAT_ID = "0193a5c2-8f00-7c21-9b6e-53d1c8a4f002"
QUESTION_ID = "0193a5c2-9d1d-7f02-b1a7-90c4e5d6f113"
ANSWER_ID = "0193a5c2-a6e4-7d55-86c2-1b7a3f9e0c48"
KEY_ID = "6f1d0f6e-2f4b-4f5b-9d0e-0a3c5c1b7e42"
BEGUN, ENDED = "2026-11-30T15:04:05.120311Z", "2026-11-30T15:04:06.402118Z"

Json = dict[str, Any]

COUNTS: Json = {"input_tokens": 37, "cached_tokens": 0, "output_tokens": 7, "charged_tokens": 44}
CHAT: Json = {
    "id": CHAT_ID,
    "title": "The capital of France",
    "created_at": "2026-11-30T15:04:01.004512Z",
    "updated_at": ENDED,
    "live_run_id": None,
    "continues": None,
}
NEW_CHAT: Json = {**CHAT, "title": "", "updated_at": CHAT["created_at"]}
CHAT_DETAIL: Json = {**CHAT, "usage": {"runs": 1, **COUNTS}}
CHATS: Json = {"results": [CHAT], "next": f"/api/chats?limit=1&cursor=1796051046402118-{CHAT_ID.replace('-', '')}"}
QUESTION: Json = {
    "id": QUESTION_ID,
    "role": "user",
    "content": "What is the capital of France?",
    "token_count": 7,
    "created_at": BEGUN,
    "run": {"id": A_RUN, "status": "done"},
}
ANSWER: Json = {
    **QUESTION,
    "id": ANSWER_ID,
    "role": "assistant",
    "content": "The capital of France is Paris.",
    "created_at": ENDED,
}
MESSAGES: Json = {"results": [QUESTION, ANSWER], "next": None}
STREAM = f"/api/runs/{A_RUN}/stream"
QUEUED: Json = {"run_id": A_RUN, "message_id": QUESTION_ID, "stream": STREAM}
RUN: Json = {
    "id": A_RUN,
    "chat_id": CHAT_ID,
    "prompt_id": QUESTION_ID,
    "answer_id": ANSWER_ID,
    "kind": "reply",
    "model": "default",
    "auto": None,
    "tier": "free",
    "status": "done",
    "attempt": 1,
    "max_output_tokens": 512,
    **COUNTS,
    "epoch": 0,
    "left_out": 0,
    "finish_reason": "stop",
    "error": None,
    "created_at": BEGUN,
    "released_at": "2026-11-30T15:04:05.131090Z",
    "started_at": "2026-11-30T15:04:05.140277Z",
    "first_token_at": "2026-11-30T15:04:05.733901Z",
    "finished_at": ENDED,
    "stream": STREAM,
}
STREAMING_RUN: Json = {
    **RUN,
    "answer_id": None,
    "status": "streaming",
    "output_tokens": 0,
    "charged_tokens": 0,
    "finish_reason": "",
    "finished_at": None,
}
CANCELLED_RUN: Json = {**RUN, "status": "cancelled", "finish_reason": "cancelled"}
USAGE: Json = {
    "tier": "free",
    "tier_name": "Free",
    "concurrency": 2,
    "max_output_tokens": 512,
    "own_limits_until": None,
    "budget": {
        "tokens": 50000,
        "left_tokens": 46706,
        "refill_tokens_per_hour": 25000,
        "full_in_s": 474.3,
        "full_at": "2026-11-30T15:12:01.678901Z",
    },
    "running": 1,
    "queued": 0,
    "today": {
        "day": "2026-11-30",
        "models": [{"model": "default", "runs": 1, **COUNTS}],
        "total": {"runs": 1, **COUNTS},
    },
}
MODELS: Json = {
    "results": [
        {
            "slug": "default",
            "name": "SmolLM2-135M-Instruct",
            "context_window": 8192,
            "max_output_tokens": 512,
            "is_default": True,
        }
    ],
    "next": None,
}
KEY: Json = {
    "id": KEY_ID,
    "name": "laptop",
    "shown": "pal_x1Yz9Q",
    "scopes": ["read", "write"],
    "created_at": BEGUN,
    "expires_at": "2027-03-01T00:00:00Z",
    "last_used_at": None,
}
KEYS: Json = {"results": [KEY], "next": None}
NEW_KEY: Json = {**KEY, "secret": "pal_x1Yz9Q…"}
RUN_EVENTS = """event: started
id: 1-0-0
data: {"attempt":1,"model":"default"}

event: delta
id: 1-1-3
data: {"text":"The","offset":0}

"""
USER_EVENTS = f"""event: run_begun
data: {{"run_id":"{A_RUN}","chat_id":"{CHAT_ID}","status":"queued"}}

event: hb
data: {{}}

"""
