"""A server of names for a test: answers one name with one IPv4 address, and every other question with nothing.

    names.py NAME ADDRESS       listens on port 53 of 127.0.0.1; prints a line once it does
"""

import socket
import struct
import sys

NAME, ADDRESS = sys.argv[1], socket.inet_aton(sys.argv[2])
A = 1


def answer(question):
    """The answer to a question of one name, RFC 1035 4.1."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack_from("!H", question, at + 1)[0]
    is_ours = ".".join(labels).lower() == NAME
    found = b"\xc0\x0c" + struct.pack("!HHIH", A, 1, 60, 4) + ADDRESS if is_ours and kind == A else b""
    flags = 0x8180 | (0 if is_ours else 3)
    return question[:2] + struct.pack("!HHHHH", flags, 1, bool(found), 0, 0) + question[12 : at + 5] + found


listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("127.0.0.1", 53))
print("listening", flush=True)
while True:
    question, sender = listener.recvfrom(512)
    listener.sendto(answer(question), sender)
