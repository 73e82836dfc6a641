// The Network tab: what the task's sandbox may reach.
import { Globe, GlobeLock } from "lucide-react";
import { FactGrid } from "../../ui/table";
import table from "../../ui/table.module.css";
import type { TabProps } from ".";

export default function NetworkTab({ task }: TabProps) {
  const { internet, allow } = task.network;
  const Icon = internet ? Globe : GlobeLock;
  return (
    <div className={table.sections} tabIndex={0} role="region" aria-label="Network">
      <section>
        <h2 className="row"><Icon size={15} aria-hidden />{internet ? "The internet is open to it" : allow.length ? "Only these hosts" : "No way out but its repository"}</h2>
        {!internet && allow.length > 0 && (
          <div className={table.box}><table className={table.table}><tbody>{allow.map((host) => <tr key={host}><td><code>{host}</code></td><td data-right className="dim">allowed</td></tr>)}</tbody></table></div>
        )}
        <p className="dim">{internet ? "Private networks and the host itself stay closed." : "Everything else is refused, names too."} It was chosen when the task was made.</p>
      </section>
      <FactGrid facts={[["Repository", `${task.repository}, through this server`], ["Models", "through this server, which holds the keys"], ["Secrets by name", task.secrets.join(", ") || "none"]]} />
    </div>
  );
}
