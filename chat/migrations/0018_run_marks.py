"""Marks of what becomes of replies; by itself, since a migration locks one table that is in use and no other."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION chat_run_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM chat_mark_user(owner_id) FROM chat_chat WHERE id = NEW.chat_id AND is_kept;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER run_mark AFTER INSERT OR UPDATE OF status ON chat_run DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.kind = 'reply') EXECUTE FUNCTION chat_run_mark();
"""
BACKWARD = """
DROP TRIGGER run_mark ON chat_run;
DROP FUNCTION chat_run_mark();
"""


class Migration(migrations.Migration):
    dependencies = [("chat", "0017_marks")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
