import { InboxIcon } from "lucide-react";
import { PageFrame, PageHead } from "../../ui/page";
import { Notice } from "../../ui/states";

export default function Inbox() {
  return <PageFrame head={<PageHead title="Inbox" />}><Notice icon={InboxIcon} title="Nothing waits for you" /></PageFrame>;
}
