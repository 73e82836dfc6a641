"""How Alembic runs the platform's migrations: on the connection that `Database.migrate` holds, inside its transaction."""

from alembic import context

from sandlot.platform.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
context.run_migrations()
