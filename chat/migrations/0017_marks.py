"""A mark of each user's chats that changes with them, in the same transaction: see docs/decisions/0023."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# Once a transaction: its later changes find the row written by itself. A user who is deleted in it gets none.
FORWARD = """
CREATE FUNCTION chat_mark_user(owner uuid) RETURNS void LANGUAGE sql AS $$
    INSERT INTO chat_mark (user_id, value) SELECT id, gen_random_uuid() FROM chat_user WHERE id = owner
    ON CONFLICT (user_id) DO UPDATE SET value = excluded.value WHERE chat_mark.xmin <> pg_current_xact_id()::xid
$$;

CREATE FUNCTION chat_chat_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM chat_mark_user(CASE WHEN TG_OP = 'DELETE' THEN OLD.owner_id ELSE NEW.owner_id END);
    RETURN NULL;
END
$$;

-- At the commit, behind all other rows that the transaction locks, so that no two of them wait for each other.
CREATE CONSTRAINT TRIGGER chat_mark AFTER INSERT OR UPDATE ON chat_chat DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.is_kept) EXECUTE FUNCTION chat_chat_mark();
CREATE CONSTRAINT TRIGGER chat_mark_gone AFTER DELETE ON chat_chat DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.is_kept) EXECUTE FUNCTION chat_chat_mark();
"""
BACKWARD = """
DROP TRIGGER chat_mark_gone ON chat_chat;
DROP TRIGGER chat_mark ON chat_chat;
DROP FUNCTION chat_chat_mark();
DROP FUNCTION chat_mark_user(uuid);
"""


class Migration(migrations.Migration):
    dependencies = [("chat", "0016_run_auto")]
    operations = [
        migrations.CreateModel(
            name="Mark",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="mark",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("value", models.UUIDField(editable=False)),
            ],
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
