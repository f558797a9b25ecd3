#!/usr/bin/env python3
"""A peer on the Linux kernel's SCTP, for the interoperability tests. Needs nothing but Python.

  kernel_peer.py echo PORT              gives every message back on its own stream, as it came
  kernel_peer.py echo-once PORT         gives the first message of each association back, then shuts it down
  kernel_peer.py abort PORT             takes one message of each association, then aborts it
  kernel_peer.py source PORT            sends the test messages to whoever connects, then shuts down
  kernel_peer.py connect HOST PORT      sends the test messages, expects each back, shuts down
  kernel_peer.py wait PORT...           returns when there is a server on every port

The test messages: for each size of SIZES one on every stream of STREAMS, every second one unordered, PPID the size.
Byte i of a message is (i + size + stream) mod 251.
"""
import errno
import os
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


def main():
    what, *arguments = sys.argv[1:]
    if what == "connect":
        connect(arguments[0], int(arguments[1]))
    elif what == "wait":
        wait_for(arguments)
    else:
        serve(int(arguments[0]), {"echo": echo, "echo-once": echo_once, "abort": abort, "source": source}[what])


if __name__ == "__main__":
    main()
