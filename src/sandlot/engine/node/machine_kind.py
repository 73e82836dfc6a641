"""What machines have in common that can stand in for each other."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.engine.core.model import NewMachine, Resources


@dataclass(frozen=True, slots=True)
class MachineKind:
    """What machines have in common that can stand in for each other."""

    template_id: str
    build_id: str
    runtime: str
    resources: Resources
    layers: tuple[str, ...]
    checkpoint: str | None
    commands: tuple[str | None, str | None]
    defaults: tuple[object, ...]

    @classmethod
    def of(cls, new: NewMachine) -> MachineKind:
        template = new.template
        return cls(
            template_id=template.id,
            build_id=template.build_id,
            runtime=new.runtime,
            resources=new.resources,
            layers=template.layers,
            checkpoint=new.checkpoint,
            commands=(template.start_cmd, template.ready_cmd),
            defaults=(template.default_user, template.default_workdir, *sorted(template.env.items())),
        )
