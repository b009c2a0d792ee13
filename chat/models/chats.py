"""Conversations and their turns."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import Count, F, FilteredRelation, Q
from django.db.models.functions import Coalesce, Left, Now
from django.utils.translation import gettext
from uuid6 import uuid7

from chat.models.runs import Run
from chat.models.users import User

NOTE_ACTIVITY = "UPDATE chat_chat SET updated_at = statement_timestamp() WHERE id = %s RETURNING updated_at, title"


class ChatQuerySet(models.QuerySet["Chat"]):
    def visible_to(self, user: User) -> Self:
        """The user's own chats, as far as they are kept."""
        return self.filter(owner=user, is_kept=True)

    def with_live_run(self) -> Self:
        """Each with `live_run_id`: the reply being produced in it, or None."""
        live = Run.objects.live().filter(kind=Run.Kind.REPLY, chat=models.OuterRef("pk")).order_by()
        return self.annotate(live_run_id=models.Subquery(live.values("pk")))

    def with_opening(self) -> Self:
        """Each with `opening`, how its first message begins: what a chat without a title is known by."""
        first = Message.objects.filter(chat=models.OuterRef("pk")).order_by("position")
        begins = first.annotate(start=Left("content", Chat.LABEL_CHARS + 1)).values("start")
        return self.annotate(opening=models.Subquery(begins[:1]))

    def with_questions(self) -> Self:
        """Each with `questions`, how many it has."""
        asked = Message.objects.standing().filter(chat=models.OuterRef("pk"), role=Role.USER).order_by()
        count = asked.values("chat").annotate(count=Count("pk")).values("count")
        return self.annotate(questions=Coalesce(models.Subquery(count), 0))

    def with_beginning(self) -> Self:
        """Each with `began_with`, the summary of another chat that it goes on from, or None."""
        began = FilteredRelation("summaries", condition=Q(summaries__upto=0))
        return self.annotate(beginning=began, began_with=F("beginning__text"))

    def worth_listing(self) -> Self:
        """Without those that have neither a title nor a message: their first one was refused, or never came."""
        return self.with_opening().exclude(title="", opening__isnull=True)


class Chat(models.Model):
    """One conversation of one user."""

    LABEL_CHARS = 80

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index of its own, here and below: one that begins with the column serves the key too.
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="chats", db_index=False)
    title = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When it was last active.")
    continues = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        related_name="continued_by",
        null=True,
        blank=True,
        editable=False,
        help_text="The chat whose summary it began with.",
    )
    is_kept = models.BooleanField(
        default=True,
        db_default=True,
        editable=False,
        help_text="Else it is one request of a program: in no list, and what was said goes soon after its end.",
    )
    forgotten_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When that went, of a chat that is not kept."
    )
    opening: str | None = None  # of `with_opening`
    questions: int  # of `with_questions`
    began_with: str | None  # of `with_beginning`

    objects = ChatQuerySet.as_manager()

    class Meta:
        indexes = (
            models.Index(fields=("owner", "is_kept", "-updated_at", "-id"), name="chat_by_recency"),
            models.Index(fields=("id",), condition=Q(is_kept=False, forgotten_at=None), name="chat_to_forget"),
        )

    def __str__(self) -> str:
        return str(self.id)  # the admin shows it in lists and logs: not the title

    def note_activity(self) -> None:
        """It is the most recently active from now on, if it is still there. Its title is read again on the way."""
        with connection.cursor() as cursor:
            cursor.execute(NOTE_ACTIVITY, [self.pk])
            self.updated_at, self.title = cursor.fetchone() or (self.updated_at, self.title)

    @property
    def label(self) -> str:
        """What its owner's pages call it; ask for `with_opening`."""
        opening = self.opening or ""
        is_whole = len(opening) <= self.LABEL_CHARS
        begins = opening.strip() if is_whole else f"{opening[: self.LABEL_CHARS - 1].strip()}…"
        return self.title or begins or gettext("New chat")


class Role(models.TextChoices):
    """Who speaks."""

    USER = "user", "User"
    ASSISTANT = "assistant", "Assistant"


class MessageQuerySet(models.QuerySet["Message"]):
    def standing(self) -> Self:
        """Those that lists and prompts are made of."""
        return self.filter(replaced_at__isnull=True)


class Message(models.Model):
    """One turn. `position` orders a chat's turns: two machines' clocks may disagree."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # With an index of its own: the one below leaves out what was replaced.
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="messages")
    position = models.PositiveIntegerField()
    role = models.CharField(max_length=16, choices=Role.choices)
    content = models.TextField()
    token_count = models.PositiveIntegerField(help_text="Of the content alone, without the template around it.")
    token_ids = ArrayField(
        models.IntegerField(),
        null=True,
        blank=True,
        editable=False,
        help_text="An answer's, as the model gave them: tokenising its text may come to others.",
    )
    html = models.TextField(db_default="", editable=False, help_text="An answer as pages show it: see `chat.markup`.")
    html_version = models.PositiveSmallIntegerField(
        db_default=0, editable=False, help_text="By which rules: 0 is none."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    replaced_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When another answer to its question took its place."
    )

    objects = MessageQuerySet.as_manager()

    class Meta:
        ordering = ("position",)
        # Of titles and summaries too.
        permissions = (("read_content", "Can read what people wrote"),)
        constraints = (
            models.UniqueConstraint(
                fields=("chat", "position"), condition=Q(replaced_at__isnull=True), name="one_message_a_position"
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="message_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.role} {self.position}"
