"""How Alembic runs the migrations: on the connection that `Database.migrate` holds, inside its transaction."""

from alembic import context

from sandlot.engine.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
