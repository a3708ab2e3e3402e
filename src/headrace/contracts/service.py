"""The process of a registry: `python -m headrace.contracts.service --bootstrap HOST:PORT --port 8081 --folder DIR`."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from headrace.contracts.api import build_app
from headrace.contracts.embedded import HOST, RunningRegistry
from headrace.contracts.records import TOPIC
from headrace.contracts.registry import Registry
from headrace.contracts.store import RegistryLog
from headrace.errors import HeadraceError, PortTakenError, RegistryLoginError

LOGIN_VARIABLE = "HEADRACE_REGISTRY_LOGIN"


def main(arguments: list[str] | None = None) -> int:
    """Serves until it is told to stop. Returns the exit code."""
    options = _options(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    log = RegistryLog(options.bootstrap, options.topic)
    try:
        login = _login(options.host)
        listener = _listen(options.host, options.port)
        log.open()
        asyncio.run(_serve(options, log, listener, login))
    except HeadraceError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        log.close()
    return 0


async def _serve(options: argparse.Namespace, log: RegistryLog, listener: socket.socket, login: str | None) -> None:
    app = build_app(Registry(log), login=login, hosts=None if _is_loopback(options.host) else ["*"])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # a line per look-up would fill the disk
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if server.started and options.folder is not None:
        scheme = "https" if options.certificate else "http"
        host = HOST if options.host in ("0.0.0.0", "::") else options.host  # every address, this one among them
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        started = datetime.now(UTC).isoformat(timespec="seconds")
        RunningRegistry(os.getpid(), url, options.bootstrap, started).note(options.folder)
    await serving


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headrace.contracts.service")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--token")
    return parser.parse_args(arguments)


def _login(host: str) -> str | None:
    """`user:password`, from the environment: a command line can be read by everybody on the machine."""
    login = os.environ.get(LOGIN_VARIABLE)
    if login and ":" in login:
        return login
    if _is_loopback(host):
        return None
    raise RegistryLoginError(
        f"the registry would listen on {host}, for everybody.",
        why="Beyond the loopback interface it must know who asks.",
        fix=f"set {LOGIN_VARIABLE}=user:password, or leave out --host",
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP by name: for asyncio to send answers at once (TCP_NODELAY) it must know; else each takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTakenError(
            f"the registry can't listen on port {port} of {host}.",
            why=f"{error.strerror}.",
            fix="choose another with --port, or leave it out and a free one is chosen",
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
