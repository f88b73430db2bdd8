"""Keys for sockets that are encrypted with CURVE, as `criticd keys make` and pyzmq's certificates have them."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True)
class Keys:
    """Who we are, and whom we want to talk to: keys in Z85, 40 characters each.

    ```python
    keys = Keys.load("arm.key_secret", server="daemon.key")  # made by `criticd keys make`
    client = Client("tcp://robot-server:5761", keys=keys)
    ```

    `public` and `secret` are our own pair; the daemon lists the public one under `clients`. `server` is the daemon's
    public key: no other program can impersonate it without the secret half. The secret is not shown by `repr`.

    Hand it to `Client`, `Sender` or `Subscriber` as `keys`, with the endpoints that the daemon has under
    `curve_control`, `curve_ingest` and `curve_publish`, or its `data_dir`.
    """

    public: str
    secret: str = field(repr=False)
    server: str

    def __post_init__(self) -> None:
        for name in ("public", "secret", "server"):
            if not _KEY.fullmatch(getattr(self, name)):
                # Without the value: it may be a secret.
                raise ValueError(f"{name} is no key: it has 40 characters of Z85")

    @classmethod
    def load(cls, path: str | os.PathLike[str], server: str | os.PathLike[str]) -> Keys:
        """Our keys from the file NAME.key_secret, which only its owner may read.

        `server` is the daemon's public key, or the file NAME.key that it is in. OSError if a file cannot be read;
        ValueError if it holds no key, or others may read the secret one.
        """
        file = Path(path)
        text = file.read_text()
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise ValueError(f"{file} holds a secret key and others may read it: chmod 600 {file}")
        if not (isinstance(server, str) and _KEY.fullmatch(server)):
            server = _find(Path(server).read_text(), "public-key", server)
        return cls(_find(text, "public-key", file), _find(text, "secret-key", file), str(server))

    def use(self, socket: Any) -> None:
        """Make a socket that is not connected yet use them."""
        for option, key in (
            (zmq.CURVE_PUBLICKEY, self.public),
            (zmq.CURVE_SECRETKEY, self.secret),
            (zmq.CURVE_SERVERKEY, self.server),
        ):
            socket.setsockopt(option, key.encode())


def _find(text: str, key: str, path: str | os.PathLike[str]) -> str:
    found = re.search(rf'^\s*{key}\s*=\s*"({_KEY.pattern})"\s*$', text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{os.fspath(path)} holds no {key}: is it a key file?")
    return found[1]
