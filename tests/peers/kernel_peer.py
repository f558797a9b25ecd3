#!/usr/bin/env python3
"""A peer on the Linux kernel's SCTP, for the interoperability tests. Needs nothing but Python.

  kernel_peer.py echo PORT              gives every message back on its own stream, as it came
  kernel_peer.py echo-once PORT         gives the first message of each association back, then shuts it down
  kernel_peer.py abort PORT             takes one message of each association, then aborts it
  kernel_peer.py source PORT            sends the test messages to whoever connects, then shuts down
  kernel_peer.py sink PORT              takes numbered messages, and tells of them when asked
  kernel_peer.py flood PORT             sends numbered messages until any message comes, then tells how many
  kernel_peer.py connect HOST PORT      sends the test messages, expects each back, shuts down
  kernel_peer.py wait PORT...           returns when there is a server on every port
  kernel_peer.py wait-paths             returns when every address of every peer is confirmed and in use

The test messages: for each size of SIZES one on every stream of STREAMS, every second one unordered, PPID the size.
Byte i of a message is (i + size + stream) mod 251.

Numbered messages: NUMBERED_BYTES long, PPID 0, the first eight bytes count from 0, the others are those of a test message on
stream 0. A question and the answer have the PPID ASKED; the answer is two numbers in decimal: how many messages there were, each
once and in order, and the longest time between two in microseconds.
"""
import errno
import os
import select
import socket
import struct
import sys
import time

IPPROTO_SCTP = 132
SCTP_INITMSG = 2
SCTP_RECVRCVINFO = 32
SCTP_SNDINFO = 2  # ancillary data: RFC 6458 section 5.3.4
SCTP_RCVINFO = 3  # RFC 6458 section 5.3.5
SCTP_UNORDERED = 1

STREAMS = range(0, 4)
SIZES = [1, 2, 3, 4, 100, 1400, 1500, 9000, 65536]
MESSAGE_BYTES_MAX = 1 << 20
NUMBERED_BYTES = 1200
ASKED = 1
TRANSPORT_ACTIVE = "2"


def body(size, stream):
    return bytes((i + size + stream) % 251 for i in range(size))


def test_messages():
    for index, (size, stream) in enumerate((size, stream) for size in SIZES for stream in STREAMS):
        yield body(size, stream), stream, SCTP_UNORDERED if index % 2 else 0, size


def new_socket():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP)
    s.setsockopt(IPPROTO_SCTP, SCTP_INITMSG, struct.pack("HHHH", 16, 16, 0, 0))
    s.setsockopt(IPPROTO_SCTP, SCTP_RECVRCVINFO, struct.pack("i", 1))
    return s


def send(s, data, stream, flags, ppid):
    info = struct.pack("=HHIII", stream, flags, socket.htonl(ppid), 0, 0)
    s.sendmsg([data], [(IPPROTO_SCTP, SCTP_SNDINFO, info)])


def receive(s):
    """One whole message with its stream, flags and PPID; None when the peer has shut down."""
    pieces = []
    while True:
        try:
            data, ancillary, flags, _ = s.recvmsg(MESSAGE_BYTES_MAX, 256)
        except OSError as error:
            # After our own shutdown the association may be gone before we read.
            if error.errno == errno.ENOTCONN and not pieces:
                return None
            raise
        if not data:
            return None
        pieces.append(data)
        for level, kind, value in ancillary:
            if (level, kind) == (IPPROTO_SCTP, SCTP_RCVINFO):
                stream, _ssn, info_flags, ppid = struct.unpack_from("=HHHxxI", value)
        if flags & socket.MSG_EOR:
            return b"".join(pieces), stream, info_flags & SCTP_UNORDERED, socket.ntohl(ppid)


def serve(port, handle):
    listener = new_socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))
    listener.listen(16)
    while True:
        connection, _ = listener.accept()
        # A child for each, so that one slow peer does not hold up another.
        if os.fork() == 0:
            listener.close()
            handle(connection)
            connection.close()
            os._exit(0)
        connection.close()


def echo(s):
    while (message := receive(s)) is not None:
        send(s, *message)


def echo_once(s):
    if (message := receive(s)) is not None:
        send(s, *message)


def abort(s):
    receive(s)
    # Closing with a linger time of zero aborts: RFC 6458 section 8.1.4.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def source(s):
    for message in test_messages():
        send(s, *message)


def sink(s):
    filling = body(NUMBERED_BYTES, 0)[8:]
    count = 0
    last = None
    pause_s_max = 0.0
    while (message := receive(s)) is not None:
        data, stream, flags, ppid = message
        if ppid == ASKED:
            send(s, f"{count} {pause_s_max * 1e6:.0f}".encode(), stream, 0, ASKED)
            continue
        if data != struct.pack(">Q", count) + filling:
            send(s, f"{data[:8].hex()}, {len(data)} bytes, for message {count}".encode(), stream, 0, ASKED)
            return
        now = time.monotonic()
        if last is not None:
            pause_s_max = max(pause_s_max, now - last)
        last = now
        count += 1


def flood(s):
    filling = body(NUMBERED_BYTES, 0)[8:]
    count = 0
    while not select.select([s], [], [], 0)[0]:
        send(s, struct.pack(">Q", count) + filling, 0, 0, 0)
        count += 1
    receive(s)
    send(s, f"{count} 0".encode(), 0, 0, ASKED)
    receive(s)


def connect(host, port):
    s = new_socket()
    s.connect((host, port))
    sent = 0
    for message in test_messages():
        send(s, *message)
        back = receive(s)
        if back != message:
            what = "nothing" if back is None else f"{len(back[0])} bytes, {back[1:]}"
            sys.exit(f"sent {len(message[0])} bytes, {message[1:]}, and got {what} back")
        sent += 1
    s.shutdown(socket.SHUT_WR)
    if receive(s) is not None:
        sys.exit("a message came after the last one")
    print(f"{sent} messages came back")


def wait_for(ports):
    wanted = {str(port) for port in ports}
    while True:
        with open("/proc/net/sctp/eps", encoding="ascii") as file:
            there = {line.split()[5] for line in file.readlines()[1:]}
        if wanted <= there:
            return
        time.sleep(0.05)


def wait_for_paths():
    while True:
        with open("/proc/net/sctp/remaddr", encoding="ascii") as file:
            states = [line.split()[7] for line in file.readlines()[1:]]
        if states and all(state == TRANSPORT_ACTIVE for state in states):
            return
        time.sleep(0.05)


SERVERS = {
    "echo": echo,
    "echo-once": echo_once,
    "abort": abort,
    "source": source,
    "sink": sink,
    "flood": flood,
}


def main():
    what, *arguments = sys.argv[1:]
    if what == "connect":
        connect(arguments[0], int(arguments[1]))
    elif what == "wait":
        wait_for(arguments)
    elif what == "wait-paths":
        wait_for_paths()
    else:
        serve(int(arguments[0]), SERVERS[what])


if __name__ == "__main__":
    main()
