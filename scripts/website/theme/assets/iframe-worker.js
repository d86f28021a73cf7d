// A browser lets a page that was opened from a folder start no worker. The search needs one, so there its script runs
// in a frame of the page instead, and messages are handed over by calls. From a server nothing changes.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.waiting = [];
      (document.body || document.documentElement).appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.answer(data));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.inside = inside;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.dispatchEvent(new ErrorEvent("error", { message: `cannot load ${url}` }));
      inside.document.documentElement.appendChild(script);
      this.frame = frame;
    }
    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      if (!this.inside) this.waiting.push(data);
      else setTimeout(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
