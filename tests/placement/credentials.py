"""Makes what a NATS server and its clients need to know each other: an operator, an account and users, as `nsc` does.

    credentials.py FOLDER USER...     writes FOLDER/authorization.conf and FOLDER/USER.creds

https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt says what the parts mean.
"""

import base64
import json
import pathlib
import sys
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# First bytes of keys as text: https://github.com/nats-io/nkeys
SEED, OPERATOR, ACCOUNT, USER = 18 << 3, 14 << 3, 0, 20 << 3


def check(data):
    """CRC-16/XMODEM."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ (0x1021 if crc & 0x8000 else 0)
            crc &= 0xFFFF
    return crc.to_bytes(2, "little")


def text(data):
    return base64.b32encode(data + check(data)).decode().rstrip("=")


def part(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    def __init__(self, kind):
        self.pair = Ed25519PrivateKey.generate()
        self.public = text(bytes([kind]) + self.pair.public_key().public_bytes_raw())
        self.seed = text(bytes([SEED | kind >> 5, (kind & 31) << 3]) + self.pair.private_bytes_raw())

    def token(self, subject, name, about):
        """A JWT in which this key says something about a subject."""
        claims = {"jti": name, "iat": int(time.time()), "iss": self.public, "name": name, "sub": subject.public}
        claims["nats"] = {"version": 2, **about}
        words = [part(json.dumps(words).encode()) for words in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)]
        return ".".join([*words, part(self.pair.sign(".".join(words).encode()))])


def main(folder, users):
    folder = pathlib.Path(folder)
    operator, account = Key(OPERATOR), Key(ACCOUNT)
    all_of_them = ["subs", "data", "payload", "imports", "exports", "conn", "leaf"]
    limits = {**dict.fromkeys(all_of_them, -1), "wildcards": True}
    rights = {"pub": {}, "sub": {}}
    of_account = operator.token(account, "load", {"type": "account", "limits": limits, "default_permissions": rights})
    (folder / "authorization.conf").write_text(
        f"operator: {operator.token(operator, 'test', {'type': 'operator'})}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {of_account} }}\n"
    )
    for name in users:
        user = Key(USER)
        token = account.token(user, name, {"type": "user", "subs": -1, "data": -1, "payload": -1, **rights})
        file = folder / f"{name}.creds"
        file.touch(0o600)
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )


main(sys.argv[1], sys.argv[2:])
