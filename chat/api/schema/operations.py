"""What each operation of the API is: one entry for each method of each address."""

from __future__ import annotations

from collections.abc import Mapping

from chat.api.keys import KeyShape, NewKeyShape
from chat.api.schema import codes, examples, parameters, shapes
from chat.api.schema.operation import EVENTS, HTML, OPENAPI, Answer, Body, Operation
from chat.api.schema.words import EVENTS_OF_A_RUN, EVENTS_OF_A_USER, TAGS
from chat.api.serializers import (
    ChatDetailShape,
    ChatShape,
    MessageShape,
    NewChatShape,
    QuestionShape,
    RenamingShape,
    RunShape,
)
from chat.models import Scope

CHAT, RUN, KEY = "/api/chats/{chat_id}", "/api/runs/{run_id}", "/api/keys/{key_id}"
ASKING = f"{CHAT}/messages"
PAGE_OF_CHATS = (parameters.LIMIT, parameters.CHAT_CURSOR)
PAGE_OF_MESSAGES = (parameters.CHAT_ID, parameters.LIMIT, parameters.MESSAGE_CURSOR)
PLACE = (parameters.LAST_EVENT_ID, parameters.LAST_EVENT_ID_HEADER)
CHANGES, MANAGES = (Scope.WRITE,), (Scope.ADMIN,)
TEXT: shapes.Schema = {"type": "string"}
OF_A_CHAT = dict.fromkeys(
    ("readChat", "renameChat", "deleteChat", "listMessages", "ask", "continueChat"), "$response.body#/id"
)
OF_A_RUN = dict.fromkeys(("readRun", "cancelRun", "retryRun", "followRun"), "$response.body#/run_id")
OF_A_KEY = dict.fromkeys(("readKey", "revokeKey"), "$response.body#/id")
QUEUED = Answer(
    "The run was taken in; its answer comes on its stream.",
    shapes.QueuedShape,
    examples.QUEUED,
    links={**OF_A_RUN, "readMessage": "$response.body#/message_id"},
)
UNCHANGED = Answer("What you have is still so.")

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("GET", "/api/chats"): Operation(
        "listChats",
        TAGS.CHATS,
        "List chats, most recently active first",
        {200: Answer("A page of chats.", shapes.ChatPageShape, examples.CHATS), 304: UNCHANGED},
        "A chat that becomes active during a walk moves to the front, behind you: the feed tells.",
        parameters=(*PAGE_OF_CHATS, parameters.IF_NONE_MATCH),
        codes=codes.PAGED,
    ),
    ("POST", "/api/chats"): Operation(
        "openChat",
        TAGS.CHATS,
        "Open a chat",
        {201: Answer("The new chat.", ChatShape, examples.NEW_CHAT, links=OF_A_CHAT)},
        "With the id of another chat as `continues` it begins with that one's summary and newest messages.",
        scopes=CHANGES,
        body=Body(NewChatShape, {"continues": examples.CHAT_ID}, is_required=False),
        parameters=(parameters.IDEMPOTENCY_KEY,),
        codes=("model_unknown", "model_unusable", *codes.of_fields("continues")),
    ),
    ("GET", CHAT): Operation(
        "readChat",
        TAGS.CHATS,
        "Read a chat",
        {200: Answer("The chat, with what its replies took.", ChatDetailShape, examples.CHAT_DETAIL), 304: UNCHANGED},
        parameters=(parameters.CHAT_ID, parameters.IF_NONE_MATCH),
    ),
    ("PATCH", CHAT): Operation(
        "renameChat",
        TAGS.CHATS,
        "Rename a chat",
        {200: Answer("The renamed chat.", ChatShape, examples.CHAT)},
        "A title that was given stays. Renaming is no activity.",
        scopes=CHANGES,
        body=Body(RenamingShape, {"title": "The capital of France"}),
        parameters=(parameters.CHAT_ID,),
        codes=codes.of_fields("title"),
    ),
    ("DELETE", CHAT): Operation(
        "deleteChat",
        TAGS.CHATS,
        "Delete a chat with all that is in it",
        {204: Answer("It is gone.")},
        "A live run stops, and its readers get `reset` and `cancelled`.",
        scopes=CHANGES,
        parameters=(parameters.CHAT_ID,),
    ),
    ("GET", ASKING): Operation(
        "listMessages",
        TAGS.MESSAGES,
        "List a chat's messages, the newest page first",
        {200: Answer("A page, in reading order.", shapes.MessagePageShape, examples.MESSAGES), 304: UNCHANGED},
        parameters=(*PAGE_OF_MESSAGES, parameters.IF_NONE_MATCH),
        codes=codes.PAGED,
    ),
    ("POST", ASKING): Operation(
        "ask",
        TAGS.MESSAGES,
        "Ask, and be told where the answer will be",
        {202: QUEUED},
        "Answered at once; the run waits for a worker, and is followed at `stream`.",
        scopes=CHANGES,
        body=Body(QuestionShape, {"content": "What is the capital of France?"}),
        parameters=(parameters.CHAT_ID, parameters.IDEMPOTENCY_KEY),
        codes=(
            *codes.of_fields("content", "model", "max_output_tokens"),
            *("content_blank", "content_has_nul", "content_not_unicode", "content_too_large"),
            *(*codes.PROMPT, *codes.ADMISSION, "chat_full"),
        ),
    ),
    ("GET", "/api/messages/{message_id}"): Operation(
        "readMessage",
        TAGS.MESSAGES,
        "Read a message",
        {200: Answer("The message, as it was written.", MessageShape, examples.QUESTION), 304: UNCHANGED},
        parameters=(parameters.MESSAGE_ID, parameters.IF_NONE_MATCH),
    ),
    ("GET", RUN): Operation(
        "readRun",
        TAGS.RUNS,
        "Read a run",
        {200: Answer("The run.", RunShape, examples.RUN)},
        parameters=(parameters.RUN_ID,),
    ),
    ("POST", f"{RUN}/cancel"): Operation(
        "cancelRun",
        TAGS.RUNS,
        "Stop a run",
        {
            200: Answer("It had ended before.", RunShape, examples.RUN),
            202: Answer("It ends, at once or within moments.", RunShape, examples.CANCELLED_RUN),
        },
        "Idempotent. The text so far stays as its message.",
        scopes=CHANGES,
        parameters=(parameters.RUN_ID,),
    ),
    ("POST", f"{RUN}/retry"): Operation(
        "retryRun",
        TAGS.RUNS,
        "Have the chat's latest question answered again",
        {202: QUEUED},
        "After any run that has ended. The answer that stands is shown until the new one lands.",
        scopes=CHANGES,
        parameters=(parameters.RUN_ID, parameters.IDEMPOTENCY_KEY),
        codes=("not_latest", *codes.PROMPT, *codes.ADMISSION),
    ),
    ("GET", f"{RUN}/stream"): Operation(
        "followRun",
        TAGS.STREAMS,
        "Follow a run",
        {
            200: Answer("Its events, to the last one.", TEXT, examples.RUN_EVENTS, EVENTS),
            204: Answer("The client has had the last event."),
        },
        EVENTS_OF_A_RUN,
        parameters=(parameters.RUN_ID, *PLACE),
    ),
    ("GET", "/api/events"): Operation(
        "followChats",
        TAGS.STREAMS,
        "Follow all chats, and some runs",
        {200: Answer("Events, for ten minutes at most.", TEXT, examples.USER_EVENTS, EVENTS)},
        EVENTS_OF_A_USER,
        parameters=(parameters.NAMED_RUNS, *PLACE),
        codes=("too_many_named", "not_found"),
    ),
    ("GET", "/api/usage"): Operation(
        "readUsage",
        TAGS.ACCOUNT,
        "Read what may be used, and what is left",
        {200: Answer("Limits, budget, and today's use.", shapes.UsageShape, examples.USAGE)},
    ),
    ("GET", "/api/models"): Operation(
        "listModels",
        TAGS.ACCOUNT,
        "List the models that may be picked, the default one first",
        {200: Answer("All of them.", shapes.ModelListShape, examples.MODELS)},
    ),
    ("GET", "/api/keys"): Operation(
        "listKeys",
        TAGS.KEYS,
        "List API keys, newest first",
        {200: Answer("All of them, without their secrets.", shapes.KeyListShape, examples.KEYS)},
        scopes=(Scope.READ, *MANAGES),
    ),
    ("POST", "/api/keys"): Operation(
        "makeKey",
        TAGS.KEYS,
        "Make an API key",
        {201: Answer("The key, with its secret.", shapes.NewKeyWithSecretShape, examples.NEW_KEY, links=OF_A_KEY)},
        "The secret is in this answer and nowhere else. A key gives no scope that it lacks.",
        scopes=(*CHANGES, *MANAGES),
        body=Body(NewKeyShape, {"name": "laptop", "scopes": ["read", "write"], "expires_at": "2027-03-01T00:00:00Z"}),
        codes=(*codes.of_fields("name", "scopes", "expires_at"), "too_many_keys", "too_many_new_keys"),
    ),
    ("GET", KEY): Operation(
        "readKey",
        TAGS.KEYS,
        "Read an API key",
        {200: Answer("The key, without its secret.", KeyShape, examples.KEY)},
        scopes=(Scope.READ, *MANAGES),
        parameters=(parameters.KEY_ID,),
    ),
    ("DELETE", KEY): Operation(
        "revokeKey",
        TAGS.KEYS,
        "Revoke an API key",
        {204: Answer("From now on it opens nothing.")},
        scopes=(*CHANGES, *MANAGES),
        parameters=(parameters.KEY_ID,),
    ),
    ("GET", "/api/schema"): Operation(
        "readSchema",
        TAGS.DESCRIPTION,
        "Read this description",
        {200: Answer("An OpenAPI 3.1 document.", {"type": "object"}, media_type=OPENAPI)},
        scopes=(),
    ),
    ("GET", "/api/docs"): Operation(
        "readDocs",
        TAGS.DESCRIPTION,
        "Read this description as a page",
        {200: Answer("A page without scripts.", TEXT, media_type=HTML)},
        scopes=(),
    ),
}
