"""Token ids of chats by transformers itself; run as `python -m tests.inference.reference_chats FOLDER < chats.json`.

In a process of its own: transformers brings torch along, which nothing else in these tests needs.
"""

from __future__ import annotations

import json
import sys

from transformers import AutoTokenizer

reference = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
json.dump(
    [
        reference.apply_chat_template(chat["messages"], add_generation_prompt=chat["opened"], return_dict=False)
        for chat in json.load(sys.stdin)
    ],
    sys.stdout,
)
