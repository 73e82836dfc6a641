"""The live view's page: draws the pictures of a browser, and sends what the viewer does. It needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib

_STYLE = """
html, body { margin: 0; height: 100%; background: #15171c; color: #d5d8de; font: 14px system-ui, sans-serif; }
body { display: flex; flex-direction: column; }
header { padding: 6px 10px; display: flex; gap: 10px; align-items: center; }
body.fullscreen header { display: none; }
#state { opacity: .75; }
main { flex: 1; min-height: 0; display: flex; justify-content: center; align-items: flex-start; }
canvas { max-width: 100%; max-height: 100%; background: #fff; outline: none; }
"""
_SCRIPT = """
const asked = new URLSearchParams(location.search);
if (asked.get('fullscreen')) document.body.classList.add('fullscreen');
const canvas = document.querySelector('canvas'), pen = canvas.getContext('2d'), state = document.querySelector('#state');
const socket = new WebSocket((location.protocol === 'https:' ? 'wss:' : 'ws:') + '//' + location.host +
  '/browserbase/live/socket?token=' + encodeURIComponent(asked.get('token')));
socket.binaryType = 'blob';
let newest = 0, shown = 0;
socket.onopen = () => { state.textContent = 'Connected. Click into the picture to type.'; };
socket.onclose = (event) => { state.textContent = 'Over: ' + (event.reason || 'the connection was closed'); };
socket.onmessage = async (message) => {
  const number = ++newest, picture = await createImageBitmap(message.data);
  if (number < shown) return;
  shown = number;
  if (canvas.width !== picture.width || canvas.height !== picture.height) {
    canvas.width = picture.width; canvas.height = picture.height;
  }
  pen.drawImage(picture, 0, 0);
  canvas.dataset.frames = String(number);
};
const send = (input) => { if (socket.readyState === 1) socket.send(JSON.stringify(input)); };
const modifiers = (e) => (e.altKey ? 1 : 0) | (e.ctrlKey ? 2 : 0) | (e.metaKey ? 4 : 0) | (e.shiftKey ? 8 : 0);
const place = (e) => {
  const box = canvas.getBoundingClientRect();
  return { x: (e.clientX - box.left) * canvas.width / box.width, y: (e.clientY - box.top) * canvas.height / box.height };
};
const buttons = ['left', 'middle', 'right'];
const mouse = (type, e, more) => send({ type, ...place(e), modifiers: modifiers(e), ...more });
canvas.addEventListener('mousedown', (e) => { canvas.focus(); mouse('mousePressed', e, { button: buttons[e.button] || 'none', clickCount: e.detail || 1 }); e.preventDefault(); });
canvas.addEventListener('mouseup', (e) => mouse('mouseReleased', e, { button: buttons[e.button] || 'none', clickCount: e.detail || 1 }));
let moved = 0;
canvas.addEventListener('mousemove', (e) => { if (e.timeStamp - moved > 40) { moved = e.timeStamp; mouse('mouseMoved', e, {}); } });
canvas.addEventListener('wheel', (e) => { mouse('mouseWheel', e, { deltaX: e.deltaX, deltaY: e.deltaY }); e.preventDefault(); }, { passive: false });
canvas.addEventListener('contextmenu', (e) => e.preventDefault());
const key = (type, e) => {
  const text = type === 'keyDown' && !e.ctrlKey && !e.metaKey ? (e.key === 'Enter' ? '\\r' : e.key.length === 1 ? e.key : undefined) : undefined;
  send({ type: type === 'keyDown' && text === undefined ? 'rawKeyDown' : type, key: e.key, code: e.code, text, windowsVirtualKeyCode: e.keyCode, modifiers: modifiers(e) });
};
canvas.addEventListener('keydown', (e) => { if ((e.ctrlKey || e.metaKey) && e.key === 'v') return; key('keyDown', e); e.preventDefault(); });
canvas.addEventListener('keyup', (e) => { key('keyUp', e); e.preventDefault(); });
document.addEventListener('paste', (e) => { send({ type: 'paste', text: e.clipboardData.getData('text').slice(0, 3000) }); e.preventDefault(); });
"""
PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Live view</title>'
    f"<style>{_STYLE}</style></head><body><header><strong>Live view</strong><span id=state role=status>Connecting</span></header>"
    f'<main><canvas tabindex=0 width=1280 height=720 aria-label="The browser"></canvas></main><script>{_SCRIPT}</script></body></html>'
)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Whoever has the address may show it in a frame: the address is the key, and no cookie counts here.
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
