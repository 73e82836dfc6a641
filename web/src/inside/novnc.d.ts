// The part of noVNC that the console uses; the package comes without types.
declare module "@novnc/novnc" {
  interface Options {
    shared?: boolean;
    credentials?: { password?: string };
  }
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, channel: WebSocket, options?: Options);
    viewOnly: boolean;
    scaleViewport: boolean;
    clipViewport: boolean;
    focusOnClick: boolean;
    background: string;
    qualityLevel: number;
    compressionLevel: number;
    disconnect(): void;
    focus(): void;
  }
}
