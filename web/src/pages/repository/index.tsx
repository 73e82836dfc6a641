// One repository: its pull requests and branches.
import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronLeft, GitPullRequest } from "lucide-react";
import { api } from "../../api/client";
import { useParam, useSearchState } from "../../app/navigation";
import { CodeBlock } from "../../ui/copy";
import { Empty, Shown } from "../../ui/states";
import { FactGrid } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";
import { PullState } from "../pull/state";
import { FORGES } from "../repositories";

export default function RepositoryPage() {
  const name = decodeURIComponent(useParam("name"));
  const [search, change] = useSearchState();
  const path = { path: { name } };
  const state = search["state"] === "all" ? undefined : "open";
  const repository = useQuery({ queryKey: ["repository", name], queryFn: () => api.data(api.GET("/repositories/{name}", { params: path })) });
  const pulls = useQuery({ queryKey: ["repository", name, "pulls", state], queryFn: () => api.data(api.GET("/repositories/{name}/pulls", { params: { ...path, query: { state } } })), refetchInterval: 10_000, retry: false });
  const branches = useQuery({ queryKey: ["repository", name, "branches"], queryFn: () => api.data(api.GET("/repositories/{name}/branches", { params: path })), retry: false });
  return (
    <div className={table.page}>
      <header className={table.head}>
        <Link to={"/repositories" as string} className={table.back} aria-label="Back to all repositories"><ChevronLeft size={16} aria-hidden /></Link>
        <h1 className="cut">{name}</h1>
      </header>
      <div className={table.panel}>
        <Shown query={repository}>
          {(found) => (
            <div className={table.sections}>
              <section><h2 className="hidden-text">Facts</h2><FactGrid facts={[["Where", FORGES[found.forge] ?? found.forge], ["Default branch", <code key="b">{found.default_branch}</code>], ["Owner", found.user_id ?? "everybody"], ["Problem", found.problem ?? "none"]]} /></section>
              <section>
                <div className="row"><h2 className="grow">Pull requests</h2><SegmentedControl aria-label="Which pull requests" value={state ?? "all"} onChange={(value) => change({ state: value === "all" ? "all" : undefined })} data={[{ value: "open", label: "Open" }, { value: "all", label: "All" }]} /></div>
                <div className={table.box}>
                  <Shown query={pulls}>
                    {({ pulls: list }) =>
                      list.length ? (
                        <table className={table.table}>
                          <thead><tr><th>Pull request</th><th>State</th><th data-wide>Branch</th><th>By</th><th data-right>Opened</th></tr></thead>
                          <tbody>
                            {list.map((pull) => (
                              <tr key={pull.number}>
                                <td><Link to={`/repositories/${encodeURIComponent(name)}/pulls/${pull.number}` as string}>{pull.title}</Link> <span className="faint num">#{pull.number}</span></td>
                                <td><PullState pull={pull} /></td>
                                <td data-wide className="dim"><code>{pull.head}</code> into <code>{pull.base}</code></td>
                                <td className="dim">{pull.author || "–"}</td>
                                <td data-right className="faint"><Ago at={pull.created_at} suffix=" ago" /></td>
                              </tr>
                            ))}
                          </tbody>
                        </table>
                      ) : <Empty icon={GitPullRequest} title={state ? "No open pull requests" : "No pull requests"}>A task that ends well opens one.</Empty>
                    }
                  </Shown>
                </div>
              </section>
              <section>
                <h2>Branches</h2>
                <div className={table.box}>
                  <Shown query={branches}>
                    {({ branches: list }) => (
                      <table className={table.table}>
                        <thead><tr><th>Branch</th><th data-right>Commit</th></tr></thead>
                        <tbody>{list.map((branch) => <tr key={branch.name}><td><code>{branch.name}</code></td><td data-right className="faint"><code>{branch.sha.slice(0, 10)}</code></td></tr>)}</tbody>
                      </table>
                    )}
                  </Shown>
                </div>
              </section>
              <section><h2>Clone it</h2><CodeBlock label="Command" text={`git clone ${found.clone_url}`} /></section>
            </div>
          )}
        </Shown>
      </div>
    </div>
  );
}
