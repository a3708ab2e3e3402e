"""The live push: one message a second to every open page, with all pipelines and the one that it looks at."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.ops.watch import Watch

MOST_CONNECTIONS = 50
_MOST_BYTES = 1000


class Push:
    """The open connections. What several pages look at is encoded once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._open = 0
        self._news = asyncio.Condition()
        self._number = 0
        self._encoded: dict[str, tuple[int, str]] = {}

    async def announce(self) -> None:
        """There is something new."""
        async with self._news:
            self._number += 1
            self._news.notify_all()

    async def serve(self, socket: WebSocket) -> None:
        """One connection until it ends. `{"pipeline": NAME}` or `{"topic": NAME}` from it chooses what it gets."""
        if self._open >= MOST_CONNECTIONS:
            await socket.close(1013, "too many connections")
            return
        await socket.accept()
        self._open += 1
        chosen: dict[str, str] = {}
        changed = asyncio.Event()
        listening = asyncio.create_task(self._listen(socket, chosen, changed))
        try:
            while not listening.done():
                await socket.send_text(self._message(chosen))
                await self._until_news(changed, listening)
        except (WebSocketDisconnect, RuntimeError):
            return  # it closed while we were sending
        finally:
            self._open -= 1
            listening.cancel()

    async def _listen(self, socket: WebSocket, chosen: dict[str, str], changed: asyncio.Event) -> None:
        try:
            while True:
                text = await socket.receive_text()
                if len(text) > _MOST_BYTES:
                    await socket.close(1009, "too long")
                    return
                wish = json.loads(text)
                if isinstance(wish, dict):
                    chosen.clear()
                    chosen.update({k: str(v) for k, v in wish.items() if k in ("pipeline", "topic")})
                    changed.set()
        except (WebSocketDisconnect, ValueError, RuntimeError, KeyError):
            return

    async def _until_news(self, changed: asyncio.Event, listening: asyncio.Task[None]) -> None:
        """Until there is something new, the page has chosen something else, or it is gone."""

        async def news() -> None:
            async with self._news:
                seen = self._number
                await self._news.wait_for(lambda: self._number != seen)

        waiting = [asyncio.create_task(news()), asyncio.create_task(changed.wait())]
        try:
            await asyncio.wait([*waiting, listening], return_when=asyncio.FIRST_COMPLETED, timeout=15)
            changed.clear()
        finally:
            for task in waiting:
                task.cancel()

    def _message(self, chosen: dict[str, str]) -> str:
        key = json.dumps(chosen, sort_keys=True)
        known = self._encoded.get(key)
        if known is not None and known[0] == self._number:
            return known[1]
        message: dict[str, Any] = {"summary": self._watch.summary()}
        if "pipeline" in chosen:
            message["detail"] = self._watch.detail(chosen["pipeline"])
        if "topic" in chosen:
            message["results"] = self._watch.results(chosen["topic"])
        if len(self._encoded) > MOST_CONNECTIONS:
            self._encoded.clear()
        text = json.dumps(message, separators=(",", ":"))
        self._encoded[key] = (self._number, text)
        return text
