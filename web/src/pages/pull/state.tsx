// The state of a pull request, by icon and word.
import { GitMerge, GitPullRequest, GitPullRequestClosed, GitPullRequestDraft } from "lucide-react";
import type { Schemas } from "../../api/client";
import table from "../../ui/table.module.css";

export function PullState({ pull }: { pull: Pick<Schemas["PullRequestInfo"], "state" | "draft"> }) {
  const [Icon, tone, words] =
    pull.state === "merged" ? ([GitMerge, "busy", "Merged"] as const) : pull.state === "closed" ? ([GitPullRequestClosed, "bad", "Closed"] as const) : pull.draft ? ([GitPullRequestDraft, "none", "Draft"] as const) : ([GitPullRequest, "good", "Open"] as const);
  return <span className={table.state} data-tone={tone}><Icon size={14} aria-hidden />{words}</span>;
}
